"""store: one SQLite file (WAL) for checkpoints, chain, journal, approvals, runs and steps: made, opened, read."""

import os
import sqlite3
from collections.abc import Generator, Mapping
from contextlib import closing, contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Literal, TypeVar

from interlock.services.sqlite import BUSY_TIMEOUT_S, Buffered, StoreConnection, explain, explained
from interlock.state.errors import InterlockError, StoreError

SCHEMA_VERSION = 5
"""`PRAGMA user_version`; grows with every change that an older Interlock can't read."""


def state_home(env: Mapping[str, str] = os.environ) -> Path:
    """`$INTERLOCK_HOME`, else `$XDG_STATE_HOME/interlock`, else `~/.local/state/interlock`."""
    if home := env.get("INTERLOCK_HOME"):
        return Path(home).expanduser().absolute()
    base = env.get("XDG_STATE_HOME") or str(Path(env.get("HOME") or Path.home()) / ".local" / "state")
    return Path(base).expanduser().absolute() / "interlock"


@contextmanager
def reading(home: Path) -> Generator[sqlite3.Connection | None]:
    """A connection that can't write; None where nothing has run yet. Raises `StoreError` in one line."""
    path = home / "interlock.db"
    if not path.exists():
        yield None
        return
    conn: sqlite3.Connection | None = None
    try:
        conn = sqlite3.connect(path, timeout=10)
        conn.row_factory = sqlite3.Row
        conn.execute("pragma query_only = 1")
        yield conn if _version(conn, path) else None
    except sqlite3.DatabaseError as error:
        raise explain(error, path) from error
    finally:
        if conn is not None:
            conn.close()


def _version(conn: sqlite3.Connection, path: Path) -> int:
    (version,) = conn.execute("pragma user_version").fetchone()
    if version > SCHEMA_VERSION:
        raise StoreError(
            f"The store {str(path)!r} was written by a newer Interlock (version {version}, this one "
            f"reads {SCHEMA_VERSION}). Upgrade, or choose another with INTERLOCK_HOME."
        )
    return version


def select(home: Path, sql: str, *values: object) -> list[sqlite3.Row]:
    """The rows; none where nothing has run yet. Raises `StoreError` in one line."""
    with reading(home) as conn:
        return conn.execute(sql, values).fetchall() if conn else []


def insertion(table: str, row: Mapping[str, object], how: str = "insert") -> tuple[str, tuple[object, ...]]:
    """The statement that adds a row, given by column, and its values. `how`: also `insert or replace`, `or ignore`."""
    return f"{how} into {table} ({', '.join(row)}) values ({', '.join('?' * len(row))})", (*row.values(),)


_PAGE = 2048
"""Bytes. A commit writes whole pages, of many small tables."""
C = TypeVar("C", bound=StoreConnection)
_CHECKPOINT_TABLES = """
create table if not exists checkpoints (
    thread_id text not null, checkpoint_ns text not null default '', checkpoint_id text not null,
    parent_checkpoint_id text, type text, checkpoint blob, metadata blob,
    primary key (thread_id, checkpoint_ns, checkpoint_id));
create table if not exists writes (
    thread_id text not null, checkpoint_ns text not null default '', checkpoint_id text not null,
    task_id text not null, idx integer not null, task_path text not null default '',
    channel text not null, type text, value blob,
    primary key (thread_id, checkpoint_ns, checkpoint_id, task_id, idx)) without rowid;
"""
"""As langgraph-checkpoint-sqlite 3.1.2 makes them. `writes` is `without rowid`, which saves a copy of its long keys;
`checkpoints` isn't: its rows of 1 KB would spill into pages of their own (measured: 2.8 MB for 0.7 MB)."""


class Store:
    """The file, and connections to it. Every connection is made, and closed, by one drive."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.path = home / "interlock.db"
        self.outputs = home / "outputs"
        self.plans = home / "plans"
        """A folder of each run: its plan files."""

    def open(self) -> None:
        """Make the folder and the tables where they aren't. Raises `StoreError` in one line."""
        try:
            self.home.mkdir(parents=True, exist_ok=True, mode=0o700)
            self.outputs.mkdir(exist_ok=True, mode=0o700)
        except OSError as error:
            raise StoreError(
                f"Can't make the state directory {str(self.home)!r}: {error.strerror}. "
                "Choose another with INTERLOCK_HOME."
            ) from error
        with explained(self.path), closing(self.connect("FULL")) as conn:
            if _version(conn, self.path) < SCHEMA_VERSION:
                schema = files("interlock.engine.store").joinpath("schema.sql").read_text(encoding="utf-8")
                conn.executescript(
                    f"begin immediate;{_CHECKPOINT_TABLES}{schema}pragma user_version={SCHEMA_VERSION};commit;"
                )

    def connect(self, synchronous: Literal["NORMAL", "FULL"] = "NORMAL") -> StoreConnection:
        """A connection in autocommit: transactions begin with `transaction` and hold no `await`."""
        return self._connect(StoreConnection, synchronous)

    def connect_driver(self) -> Buffered:
        """The connection of a drive: rows may wait for its next commit."""
        return self._connect(Buffered, "NORMAL")

    def _connect(self, kind: type[C], synchronous: str) -> C:
        with explained(self.path):
            conn = kind(self.path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
            try:
                conn.execute(f"pragma page_size={_PAGE}")  # of a new file; others keep theirs
                conn.execute("pragma journal_mode=wal")
                conn.execute(f"pragma synchronous={synchronous}")
                conn.remember()
            except BaseException:
                conn.close()
                raise
        return conn


@contextmanager
def diagnosed(path: Path) -> Generator[None]:
    """As `explained`; and what fails for another reason while rows can't be read most likely fails because of them."""
    with explained(path):
        try:
            yield
        except (InterlockError, sqlite3.Error):
            raise
        except Exception as error:
            _raise_if_damaged(path, error)
            raise


_MOST = 3
"""Damaged rows that an error names; `doctor --store` names all."""


def _raise_if_damaged(path: Path, error: Exception) -> None:
    """Raises `StoreError` when rows of the store can't be read; else `error` is a bug."""
    from interlock.engine.store.damage import unreadable

    with reading(path.parent) as conn:
        found = list(unreadable(conn, path.parent / "outputs")) if conn else []
    if found:
        more = f" and {len(found) - _MOST} more" if len(found) > _MOST else ""
        raise StoreError(
            f"The store {str(path)!r} is damaged: {'; '.join(found[:_MOST])}{more}. See all with: interlock doctor "
            "--store; remove a run with: interlock runs rm RUN; or move the store away to start anew. What failed, "
            f"if that isn't why: {type(error).__name__}: {error}"
        ) from error
