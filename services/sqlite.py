"""sqlite: transactions, buffered rows, and SQLite's errors as one line each."""

import errno
import os
import re
import sqlite3
from collections.abc import Generator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from interlock.state.errors import BusyError, StoreError

BUSY_TIMEOUT_S = 10.0
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_BROKEN = (errno.EIO, errno.EROFS)


class StoreConnection(sqlite3.Connection):
    """A connection that remembers which files it opened: writes to a deleted one would be lost without an error."""

    def __init__(self, path: Path, **options: Any) -> None:
        super().__init__(path, **options)
        self._path = path
        self._files: dict[str, tuple[int, int] | None] = {}

    def remember(self) -> None:
        """Record the files now at the paths as those this connection has open."""
        names = (str(self._path), f"{self._path}-wal")
        self._files = {name: _identity(name) for name in names}

    def check(self) -> None:
        """Raises `StoreError` if the store is no longer at its path."""
        for path, opened in self._files.items():
            if opened is not None and _identity(path) != opened:
                raise StoreError(
                    f"The store {str(self._path)!r} was deleted or replaced while this process used it, so nothing "
                    "more is written. Put it back and go on with: interlock resume latest; or start anew."
                )


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - each transaction pays for it, and Path.stat costs twice as much
    except OSError:
        return None
    return found.st_dev, found.st_ino


class Buffered(StoreConnection):
    """A driver's connection: buffers rows that nothing external depends on until its next commit (`engine.md` 23).

    They are written first in the next transaction; a statement naming one of their tables commits them beforehand. A
    kill loses them, but only work that can be repeated.
    """

    def __init__(self, path: Path, **options: Any) -> None:
        super().__init__(path, **options)
        self._waiting: list[tuple[str, Sequence[Any]]] = []
        self._tables: set[str] = set()
        """Tables with buffered rows."""
        self._sources: list[Source] = []

    def wait(self, sql: str, values: Sequence[Any]) -> None:
        self._waiting.append((sql, values))
        self._tables.add(_table_of(sql))

    def join(self, source: "Source") -> None:
        """Include the source's buffered rows in every commit from now on."""
        self._sources.append(source)

    def write(self) -> None:
        """Inside a transaction: write the buffered rows; they are kept until `committed`."""
        for sql, values in self._waiting:
            super().execute(sql, values)
        for source in self._sources:
            source.write()

    def committed(self) -> None:
        self._forget()
        for source in self._sources:
            source.written()

    def commit_waiting(self) -> None:
        """Commit buffered rows, if any."""
        if not self.in_transaction and (self._waiting or any(source.waits for source in self._sources)):
            with transaction(self):
                pass

    def end_waiting(self) -> None:
        """Commit buffered rows; if that fails they are dropped, as after a kill."""
        try:
            self.commit_waiting()
        except Exception:
            self._forget()
            for source in self._sources:
                source.give_up()
            raise

    def execute(self, sql: str, values: Any = (), /) -> sqlite3.Cursor:
        if self._tables and not self.in_transaction and not self._tables.isdisjoint(_WORD.findall(sql)):
            self.commit_waiting()
        return super().execute(sql, values)

    def _forget(self) -> None:
        self._waiting.clear()
        self._tables.clear()

    def stored(self, sql: str, values: Any = ()) -> sqlite3.Cursor:
        """Query committed rows only, for callers that handle buffered ones themselves."""
        return super().execute(sql, values)


class Source(Protocol):
    """Buffers rows of its own until the connection commits."""

    @property
    def waits(self) -> bool: ...

    def write(self) -> None:
        """Write them in the open transaction."""
        ...

    def written(self) -> None:
        """They are committed."""
        ...

    def give_up(self) -> None:
        """Drop them: they can't be written."""
        ...


_WORD = re.compile(r"\w+")


@cache
def _table_of(sql: str) -> str:
    """Return the table of an insert, an update or a delete."""
    words = _WORD.findall(sql)
    return words[1] if words[0] == "update" else words[words.index("into" if "into" in words else "from") + 1]


@contextmanager
def transaction(conn: sqlite3.Connection, *, synced: bool = False) -> Generator[sqlite3.Connection]:
    """Open a write transaction, or join the open one. Must not contain an `await`: it would block others.

    `synced`: it and all earlier commits survive a power cut.
    """
    if conn.in_transaction:
        yield conn
        return
    with _synchronous(conn) if synced else nullcontext():
        conn.execute("begin immediate")
        try:
            if isinstance(conn, StoreConnection):
                conn.check()
            if isinstance(conn, Buffered):
                conn.write()
            yield conn
            conn.execute("commit")
        except BaseException:
            if conn.in_transaction:
                conn.execute("rollback")
            raise
    if isinstance(conn, Buffered):
        conn.committed()


@contextmanager
def _synchronous(conn: sqlite3.Connection) -> Generator[None]:
    (before,) = conn.execute("pragma synchronous").fetchone()
    conn.execute("pragma synchronous = full")
    try:
        yield
    finally:
        conn.execute(f"pragma synchronous = {before}")


def later(conn: sqlite3.Connection, sql: str, values: Sequence[Any]) -> None:
    """Write a row that nothing external depends on: with the driver's next commit; on other connections at once."""
    if isinstance(conn, Buffered) and not conn.in_transaction:
        conn.wait(sql, values)
    else:
        with transaction(conn):
            conn.execute(sql, values)


@contextmanager
def explained(path: Path) -> Generator[None]:
    """Convert errors of SQLite and the disk to one line that says what to do."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        raise explain(error, path) from error
    except OSError as error:
        if error.errno not in (*_FULL, *_BROKEN):
            raise
        raise explain_disk(error, path) from error


def explain(error: sqlite3.DatabaseError, path: Path) -> StoreError | BusyError:
    """Return our error for one of SQLite's."""
    text, shown = str(error), repr(str(path))
    if "locked" in text or "busy" in text:
        return BusyError(
            f"The store {shown} is busy: another process has written to it for {BUSY_TIMEOUT_S:.0f} s. "
            "See which with: interlock runs --status running"
        )
    if "full" in text:
        return _no_space(shown)
    if "readonly" in text or "unable to open" in text:
        return StoreError(
            f"Can't write the store {shown}: {text}. Check its permissions, or set INTERLOCK_HOME."
        )
    if "malformed" in text or "not a database" in text:
        return StoreError(
            f"The store {shown} is damaged ({text}). Move it away to start anew, "
            "or recover it with: sqlite3 interlock.db .recover"
        )
    if "disk I/O" in text:
        return StoreError(
            f"The disk failed under the store {shown} ({text}). Check that it has space and can be written, "
            "then: interlock resume latest"
        )
    return StoreError(f"The store {shown} failed: {text}. Check it with: interlock doctor --store")


def explain_disk(error: OSError, path: Path) -> StoreError:
    """Describe a full or broken disk, naming the file involved."""
    shown = repr(str(error.filename or path))
    if error.errno in _FULL:
        return _no_space(shown)
    return StoreError(
        f"Can't write {shown}: {error.strerror}. Check the disk, then: interlock resume latest; "
        "or choose another state directory with INTERLOCK_HOME."
    )


def _no_space(shown: str) -> StoreError:
    return StoreError(
        f"No space left to write {shown}. Free some, then: interlock resume latest; "
        "or choose another state directory with INTERLOCK_HOME."
    )
