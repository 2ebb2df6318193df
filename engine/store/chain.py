"""chain: the rows of conversation records (`engine.md` 8-10)."""

import sqlite3
from dataclasses import dataclass

from interlock.services.sqlite import later
from interlock.services.transcript import StoredRecord


@dataclass(frozen=True)
class SqlChain:
    """Implements `ChainRecords`."""

    conn: sqlite3.Connection

    def add(self, name: str, run: str, record: StoredRecord) -> None:
        later(
            self.conn,
            "insert or ignore into chain (id, parent, run, body, file) values (?, ?, ?, ?, ?)",
            (name, record.parent, run, record.body, record.file),
        )

    def find(self, name: str) -> StoredRecord | None:
        row = self.conn.execute("select parent, body, file from chain where id = ?", (name,)).fetchone()
        return StoredRecord(*row) if row else None

    def after(self, parent: str) -> list[str]:
        """The records that follow one."""
        rows = self.conn.execute("select id from chain where parent = ?", (parent,))
        return [name for (name,) in rows.fetchall()]

    def messages(self) -> list[str]:
        """Every record of a message."""
        return [name for (name,) in self.conn.execute("select id from chain where parent <> ''").fetchall()]
