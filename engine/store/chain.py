"""chain: the rows of conversation records (`engine.md` 8-10)."""

from dataclasses import dataclass
from pathlib import Path

from interlock.engine.store import put
from interlock.engine.store.blobs import blobs_of
from interlock.engine.store.connection import Connection
from interlock.services.files.blobs import Blobs, deflated
from interlock.services.transcript import StoredRecord


@dataclass(frozen=True)
class SqlChain:
    """Implements `ChainRecords`."""

    conn: Connection

    def add(self, name: str, run: str, record: StoredRecord) -> None:
        row = record._replace(body=deflated(record.body)) if record.body else record
        put(self.conn, "chain", {"id": name, "run": run, **row._asdict()}, "keep", later=True)

    def find(self, name: str) -> StoredRecord | None:
        row = self.conn.execute("select parent, body, file from chain where id = ?", (name,)).fetchone()
        return StoredRecord(*row) if row else None

    def blobs(self, outputs: Path) -> Blobs:
        return blobs_of(self.conn, outputs)

    def after(self, parent: str) -> list[str]:
        """The records that follow one."""
        rows = self.conn.execute("select id from chain where parent = ?", (parent,))
        return [name for (name,) in rows.fetchall()]

    def messages(self) -> list[str]:
        return [name for (name,) in self.conn.execute("select id from chain where parent <> ''").fetchall()]
