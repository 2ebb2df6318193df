"""seen_files: what a conversation saw of the workspace's files, kept with the run's journal."""

import zlib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from interlock.engine.store.connection import Connection
from interlock.state.clock import unix_time
from interlock.state.seen import How, SeenFile, SeenFiles

_MOST_CHARS = 50_000
"""Of a text that is kept: a diff of a longer one is seldom short."""
_RANK: dict[How, int] = {"told": 0, "part": 1, "read": 2, "written": 2}


class _Row(NamedTuple):
    seq: int
    record: str
    digest: str
    how: How


@dataclass
class SqlSeenFiles:
    """Implements `SeenLog`: the table `seen_files` for one conversation: a run's, or that of one of its sub-agents."""

    conn: Connection
    run: str
    agent: str
    redact: Callable[[str], str]
    recorded_notes: Mapping[str, str] | None = None
    """In a replay: record → what the model was told after it of changed files."""

    @cached_property
    def _rows(self) -> dict[str, list[_Row]]:
        """By path, oldest first; only this drive adds any."""
        found: dict[str, list[_Row]] = {}
        query = (
            "select path, seq, record, digest, how from seen_files where run = $1 and agent = $2 order by seq"
        )
        for path, *row in self.conn.execute(query, (self.run, self.agent), tables=("seen_files",)).fetchall():
            found.setdefault(path, []).append(_Row(*row))
        return found

    def record(self, record: str, files: Iterable[SeenFile]) -> None:
        """Record what a message of the conversation shows. It waits for the next commit."""
        for file in files:
            rows = self._rows.setdefault(file.path, [])
            last = rows[-1] if rows else None
            if last and last.digest == file.digest and _RANK[last.how] >= _RANK[file.how]:
                continue
            row = _Row(last.seq + 1 if last else 0, record, file.digest, file.how)
            rows.append(row)
            text = None if file.text is None or len(file.text) > _MOST_CHARS else self.redact(file.text)
            body = None if text is None else zlib.compress(text.encode(errors="surrogatepass"), 1)
            where = {"run": self.run, "agent": self.agent, "path": file.path}
            self.conn.insert("seen_files", {**where, **row._asdict(), "body": body, "at": unix_time()})

    def forget(self, records: Collection[str]) -> None:
        for path, rows in self._rows.items():
            self._rows[path] = [row for row in rows if row.record not in records]
        for record in records:
            self.conn.delete("seen_files", {"run": self.run, "agent": self.agent, "record": record})

    def list_newest(self) -> list[SeenFile]:
        newest = ((path, rows[-1]) for path, rows in self._rows.items() if rows)
        return [SeenFile(path=path, digest=row.digest, how=row.how) for path, row in newest]

    def find_recorded_note(self, head: str) -> str | None:
        return None if self.recorded_notes is None else self.recorded_notes.get(head, "")

    def before(self, message: str) -> SeenFiles:
        return _SeenBefore(self, message)

    def find_row_before(self, path: str, message: str) -> _Row | None:
        """How a file was last seen before a message with calls; what the same batch wrote counts."""
        for row in reversed(self._rows.get(path, ())):
            if row.how != "told" and (row.record != message or row.how == "written"):
                return row
        return None

    def load_text(self, path: str, row: _Row) -> str | None:
        query = "select body from seen_files where run = $1 and agent = $2 and path = $3 and seq = $4"
        where = (self.run, self.agent, path, row.seq)
        (body,) = self.conn.execute(query, where, tables=("seen_files",)).fetchone()
        return None if body is None else zlib.decompress(body).decode(errors="surrogatepass")


@dataclass(frozen=True)
class _SeenBefore:
    """Implements `SeenFiles`."""

    files: SqlSeenFiles
    message: str

    def find_seen_file(self, path: str) -> SeenFile | None:
        row = self.files.find_row_before(path, self.message)
        return SeenFile(path=path, digest=row.digest, how=row.how) if row else None

    def load_text(self, path: str) -> str | None:
        row = self.files.find_row_before(path, self.message)
        return self.files.load_text(path, row) if row else None

    def redact(self, text: str) -> str:
        return self.files.redact(text)
