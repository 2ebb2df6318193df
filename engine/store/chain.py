"""chain: the records of a conversation (`docs/internals.md#records`): their rows, and the messages they hold."""

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from interlock.engine.store import open_reader, select_rows
from interlock.engine.store.blobs import open_blob_storage, record_files_named_by_row
from interlock.engine.store.checkpoints import read_state_at_step
from interlock.engine.store.connection import Connection
from interlock.services.files.blobs import Blobs, deflate_if_shorter
from interlock.services.transcript import ChainTranscript, StoredRecord
from interlock.state.messages import Message


@dataclass(frozen=True)
class SqlChain:
    """Implements `ChainRecords`."""

    conn: Connection

    def add_record(self, name: str, run: str, record: StoredRecord, body: bytes) -> None:
        record_files_named_by_row(self.conn, run, body, record.file)
        row = record._replace(body=deflate_if_shorter(record.body)) if record.body else record
        self.conn.insert("chain", {"id": name, "run": run, **row._asdict()}, "keep")

    def find_record(self, name: str) -> StoredRecord | None:
        row = self.conn.execute(
            "select parent, body, file from chain where id = $1", (name,), tables=("chain",)
        ).fetchone()
        return StoredRecord(*row) if row else None

    def blob_storage(self, outputs: Path) -> Blobs:
        return open_blob_storage(self.conn, outputs)

    def list_following_records(self, parent: str) -> list[str]:
        """The records that follow one."""
        rows = self.conn.execute("select id from chain where parent = $1", (parent,), tables=("chain",))
        return [name for (name,) in rows.fetchall()]

    def list_message_records_with_parents(self, first_run: str) -> list[tuple[str, str]]:
        """Each message's record and the one before it; those of this run first."""
        query = "select id, parent from chain where parent <> '' order by run <> $1"
        return self.conn.execute(query, (first_run,), tables=("chain",)).fetchall()


def read_first_prompt(home: Path, run: str) -> str:
    """The prompt a run started with, available before its first checkpoint; empty: it takes none."""
    rows = select_rows(home, "select input from runs where run = $1", run)
    record = str(json.loads(rows[0]["input"]).get("prompt") or "") if rows else ""
    messages = read_messages_up_to(home, run, record)
    return messages[-1].text if messages else ""


def read_messages_up_to(home: Path, run: str, head: str) -> list[Message]:
    """The conversation up to a record of the chain."""
    with open_reader(home) as conn:
        if conn is None or not head:
            return []
        return ChainTranscript(SqlChain(conn), home / "outputs", run).read(head)


def list_dropped_messages(home: Path, run: str, head: str | None = None) -> list[list[Message]]:
    """The messages each compression or masking removed from the conversation, verbatim, oldest first.

    `head`: the conversation's last record, by default the newest.
    """
    head = str(read_state_at_step(home, run).get("head") or "") if head is None else head
    found: list[list[Message]] = []
    with open_reader(home) as conn:
        if conn is None:
            return []
        chain = ChainTranscript(SqlChain(conn), home / "outputs", run)
        while head and (old := chain.find_continued_head(head)):
            kept = Counter(m.model_dump_json() for m in chain.read(head))
            gone: list[Message] = []
            for message in chain.read(old):
                text = message.model_dump_json()
                kept[text] -= 1
                if kept[text] < 0:
                    gone.append(message)
            found.append(gone)
            head = old
    return found[::-1]
