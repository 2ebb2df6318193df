"""database: the index of one workspace as an SQLite file in the state directory. It is a cache: any problem is solved
by rebuilding it."""

import fcntl
import hashlib
import os
import sqlite3
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from interlock.services.files.disk import (
    BUSY_TIMEOUT_S,
    convert_store_errors,
    ensure_private_file,
    make_private_directory,
    to_disk_error,
)
from interlock.state.errors import StoreError
from interlock.tools.code_definitions import is_parser_installed

VERSION = "3" if is_parser_installed() else "3, cut by lines"
"""Version of schema, chunks and words; an index of another version is rebuilt."""
_ENDS = ("", "-wal", "-shm")
"""Ends of the names of SQLite's files."""
_TABLES = ("counts", "terms", "vectors", "chunks", "files", "meta")


class IndexFile:
    """The database file, opened lazily, and the lock that its writer holds."""

    def __init__(self, home: Path, workspace: Path, model: str = "") -> None:
        """`model`: the embedding model; each has its own index, so that switching models loses nothing."""
        name = hashlib.sha256(os.fsencode(workspace)).hexdigest()[:16]
        if model:
            name += f"-{hashlib.sha256(model.encode()).hexdigest()[:8]}"
        self.path = home / "index" / f"{name}.db"
        self._workspace = str(workspace)
        self._conn: sqlite3.Connection | None = None
        self._lock: int | None = None

    def try_lock(self) -> bool:
        """Become the writer; False if another process is. The lock is released if the process dies. Raises
        `StoreError`: the lock can't be opened."""
        if self._lock is not None:
            return True
        lock = self.path.with_suffix(".lock")
        with self._require_usable_paths(lock):
            make_private_directory(self.path.parent)
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        self._lock = descriptor
        return True

    def unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def open_or_rebuild_for_writing(self) -> sqlite3.Connection:
        """Open for writing; requires the lock. Rebuilds an index that is damaged or of another version."""
        with convert_store_errors(self.path, sqlite3.DatabaseError):
            try:
                conn = self._open_connection()
                if (found := _stored_version(conn)) != VERSION:
                    if found is not None:  # its free pages would keep what an older version stored
                        self._delete_database_files()
                        conn = self._open_connection()
                    self._drop_and_create_tables(conn)
            except sqlite3.DatabaseError as error:
                if isinstance(error, sqlite3.OperationalError):
                    raise
                self._delete_database_files()
                conn = self._open_connection()
                self._drop_and_create_tables(conn)
            return conn

    def recreate_tables(self) -> None:
        """Recreate the index empty; requires the lock."""
        with convert_store_errors(self.path, sqlite3.DatabaseError):
            self._drop_and_create_tables(self._open_connection())

    def open_for_reading(self) -> sqlite3.Connection | None:
        """Open for reading; None if there is no index of this version."""
        if self._conn is None and not self.path.exists():
            return None
        try:
            conn = self._open_connection()
            return conn if _stored_version(conn) == VERSION else None
        except sqlite3.DatabaseError:
            self._close_connection()
            return None

    def close(self) -> None:
        self._close_connection()
        self.unlock()

    def _open_connection(self) -> sqlite3.Connection:
        if self._conn is None:
            with self._require_usable_paths(*(Path(f"{self.path}{end}") for end in _ENDS)):
                ensure_private_file(self.path)
            conn = sqlite3.connect(
                self.path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
            )
            self._conn = conn
            for pragma in ("journal_mode = wal", "synchronous = normal", "foreign_keys = on"):
                conn.execute(f"pragma {pragma}")
            conn.execute("pragma cache_size = -65536")
        return self._conn

    @contextmanager
    def _require_usable_paths(self, *files: Path) -> Generator[None]:
        """Check that nothing but files stands at the index's places; describe the error of opening them."""
        try:
            for path in (self.path.parent, *files):
                expected = "file" if path in files else "folder"
                if path.exists() and not (path.is_file() if path in files else path.is_dir()):
                    raise StoreError(
                        f"The search index needs a {expected} at {str(path)!r}, but something else is there. "
                        "Move it away; the next search builds the index again."
                    )
            yield
        except OSError as error:
            raise to_disk_error(error, self.path) from error

    def _drop_and_create_tables(self, conn: sqlite3.Connection) -> None:
        with write_transaction(conn):
            for table in _TABLES:
                conn.execute(f"drop table if exists {table}")
            for statement in Path(__file__).with_name("schema.sql").read_text("utf-8").split(";\n"):
                conn.execute(statement)
            rows = [("version", VERSION), ("workspace", self._workspace), ("complete", ""), ("total", "0")]
            conn.executemany("insert into meta values (?, ?)", rows)

    def _close_connection(self) -> None:
        if self._conn is not None:
            self._conn.close()
            self._conn = None

    def _delete_database_files(self) -> None:
        self._close_connection()
        for end in _ENDS:
            with suppress(FileNotFoundError):
                Path(f"{self.path}{end}").unlink()


@contextmanager
def write_transaction(conn: sqlite3.Connection) -> Generator[None]:
    """What is written in it is written together."""
    conn.execute("begin immediate")
    with conn:
        yield


def _stored_version(conn: sqlite3.Connection) -> str | None:
    if conn.execute("select 1 from sqlite_master where name = 'meta'").fetchone() is None:
        return None
    row = conn.execute("select value from meta where key = 'version'").fetchone()
    return row and row[0]
