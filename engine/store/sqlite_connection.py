"""sqlite_connection: a connection to SQLite, and the triggers with which it notes what is audited."""

import json
import os
import sqlite3
from collections.abc import Generator, Iterable
from contextlib import contextmanager, nullcontext, suppress
from functools import lru_cache, partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from interlock.engine.store.audit import AUDITED, SCHEMA, Audit, begin, body_of, noting, sha
from interlock.engine.store.connection import Column, Connection, Values
from interlock.state.errors import StoreError

_KINDS = {"text": str, "blob": bytes, "integer": int, "real": (int, float)}


class SqliteConnection(Connection):
    """It remembers which files it opened: writes to a deleted one would be lost without an error. Threads take turns: a
    node without `async` journals its effects from its own.
    """

    errors = (sqlite3.Error,)
    reads = ("select", "with", "pragma")

    def __init__(self, path: Path, conn: sqlite3.Connection, *, buffers: bool = False) -> None:
        super().__init__(buffers=buffers)
        self._conn, self._path = conn, path
        self._files = {name: _identity(name) for name in (str(path), f"{path}-wal")}

    @property
    def in_transaction(self) -> bool:
        return self._conn.in_transaction

    def stored(self, sql: str, values: Values = ()) -> sqlite3.Cursor:
        return self._conn.execute(sql, values)

    def write_waiting(self, statements: Iterable[tuple[str, Values]]) -> None:
        for sql, alike in groupby(statements, itemgetter(0)):
            self._conn.executemany(sql, [values for _, values in alike])

    @contextmanager
    def begun(self, synced: bool) -> Generator[None]:
        self._audit = self._audit or installed(self._conn, self._path)
        with self._synchronous() if synced else nullcontext():
            self._conn.execute("begin immediate")
            try:
                self._still_there()
                yield
                if self._audit:
                    self._audit.append()
                self.check()
                self.commit()
            except BaseException:
                if self._audit:
                    self._audit.notes.clear()
                if self._conn.in_transaction:
                    self._conn.execute("rollback")
                raise
        if self._audit:
            self._audit.committed(synced=synced)

    def commit(self) -> None:
        self._conn.execute("commit")

    def columns(self, table: str) -> list[Column]:
        found = self._conn.execute(f"pragma table_info({table})").fetchall()
        return [Column(name, _KINDS[kind.lower()], bool(needed)) for _, name, kind, needed, *_ in found]

    def audited(self) -> None:
        """Inside the migration: begin the audit's chain."""
        add_functions(self._conn)
        self._conn.execute(SCHEMA)
        self._audit = begin(self._conn, self._path)

    def close(self) -> None:
        if self._audit:
            self._audit.committed(synced=True)
        self._conn.close()

    def _still_there(self) -> None:
        for path, opened in self._files.items():
            if opened is not None and _identity(path) != opened:
                raise StoreError(
                    f"The store {str(self._path)!r} was deleted or replaced while this process used it, so nothing "
                    "more is written. Put it back and go on with: interlock resume latest; or start anew."
                )

    @contextmanager
    def _synchronous(self) -> Generator[None]:
        (before,) = self._conn.execute("pragma synchronous").fetchone()
        self._conn.execute("pragma synchronous = full")
        try:
            yield
        finally:
            self._conn.execute(f"pragma synchronous = {before}")


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - each transaction pays for it, and Path.stat costs twice as much
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _sha(value: object) -> str | None:
    if value is None:
        return None
    return sha(value if isinstance(value, bytes) else str(value).encode(errors="surrogatepass"))


def _texts(*values: object) -> str:
    return json.dumps(values)


def _part(text: Any, *names: str) -> str | None:
    """A value inside JSON; null where there is none, and in a damaged row."""
    with suppress(ValueError, TypeError, KeyError):
        value = _parsed(text)
        for name in names:
            value = value[name]
        return value if value is None or isinstance(value, str) else json.dumps(value)
    return None


@lru_cache(maxsize=1)  # several parts of one text are asked for in turn
def _parsed(text: Any) -> Any:
    return json.loads(text)


def add_functions(conn: sqlite3.Connection) -> None:
    """What `body_of` calls."""
    conn.create_function("sha", 1, _sha, deterministic=True)
    conn.create_function("texts", -1, _texts, deterministic=True)
    conn.create_function("part", -1, _part, deterministic=True)


def installed(conn: sqlite3.Connection, path: Path) -> Audit | None:
    """None: the store has no chain yet."""
    if conn.execute("select 1 from sqlite_master where name = 'audit'").fetchone() is None:
        return None
    made = Audit(conn, path)
    add_functions(conn)
    conn.create_function("note", -1, partial(_noted, made))
    for table in AUDITED:
        for statement in _triggers(table):
            conn.execute(statement)
    return made


def _noted(audit: Audit, table: str, kind: str, run: str, key: str, body: str | None, old: str = "") -> None:
    """`old`: what would be recorded of the row before its change. The database would make both twice to compare."""
    if body != old:
        was = f',"was":"{_sha(old)}"}}' if old else ""  # as in `changed_body`
        audit.note(table, kind, run, key, body[:-1] + was if body and was else body)


def _triggers(table: str) -> Iterable[str]:
    old, new = body_of(table, "old"), body_of(table, "new")
    changes = AUDITED[table].changes
    of = f" of {changes}" if changes else ""
    made = f"create temp trigger audit_{table}"
    yield f"{made}_new after insert on {table} begin select {noting(table, 'insert', new)}; end"
    yield f"{made}_set after update{of} on {table} begin select {noting(table, 'update', f'{new}, {old}')}; end"
    yield f"{made}_gone after delete on {table} begin select {noting(table, 'delete', 'null')}; end"
