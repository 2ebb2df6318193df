"""connection: what the store asks of a database, and what all share: turns of threads, rows that wait for a commit."""

import hashlib
import json
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol, Self

from interlock.engine.store.tables import (
    TABLE,
    OnConflict,
    Row,
    Write,
    build_delete,
    build_insert,
    build_update,
)
from interlock.services.files.disk import BUSY_TIMEOUT_S


def sha256_hex(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


if TYPE_CHECKING:
    from interlock.engine.store.jobs import Jobs


class JsonFormat(NamedTuple):
    """How a database's own functions once wrote what is recorded: each record stands on the bytes of the one before."""

    separators: tuple[str, str]
    short_numbers: bool
    """Whether a time without a fraction is written as an integer."""

    def to_json(self, value: object) -> str:
        return json.dumps(value, ensure_ascii=False, separators=self.separators)

    def hash_row_numbers(self, row: Row, *names: str) -> str:
        """Return the hash of some of a row's numbers."""
        values = [row[name] for name in names]
        if self.short_numbers:
            values = [int(v) if isinstance(v, float) and v.is_integer() else v for v in values]
        return sha256_hex(json.dumps(values).encode())


class Dialect(NamedTuple):
    """What the two databases don't say alike."""

    json_field: str
    """A text field of a JSON column: `column`, `field`."""
    now: str
    """Seconds since the epoch, with a fraction."""
    second: str
    """When this second began, in seconds since the epoch."""
    day: str
    """When this day began, UTC, in whole seconds since the epoch."""
    month: str
    next_month: str
    lock_counts: str = ""
    """Lets nobody else count until the commit; empty where writers take turns."""


Values = Sequence[object]


class Rows(Protocol):
    """What a statement found, or how many rows it changed."""

    @property
    def rowcount(self) -> int: ...
    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...
    def __iter__(self) -> Iterator[Any]: ...


class FetchedRows:
    """Rows that were read whole, and need their connection no more."""

    def __init__(self, rowcount: int, rows: list[Any]) -> None:
        self.rowcount, self._rows = rowcount, iter(rows)

    def fetchone(self) -> Any:
        return next(self._rows, None)

    def fetchall(self) -> list[Any]:
        return [*self._rows]

    def __iter__(self) -> Iterator[Any]:
        return self._rows


class BufferedCheckpoints(Protocol):
    """Checkpoints that wait for the connection's next commit: the saver's."""

    @property
    def has_buffered_rows(self) -> bool: ...
    def write_buffered_checkpoints(self) -> None:
        """Write them, inside the transaction."""
        ...

    def mark_buffer_written(self) -> None:
        """They are committed."""
        ...

    def drop_buffer(self) -> None:
        """They are lost."""
        ...


CHECKPOINTS = frozenset(("checkpoints", "writes"))
"""The tables of buffered checkpoints."""


class Column(NamedTuple):
    name: str
    kind: type | tuple[type, ...]
    """What its values are in Python."""
    needed: bool
    """Whether it takes no null."""


class Connection(ABC):
    """One connection to the store, in autocommit mode. Statements are SQL that SQLite and PostgreSQL both speak.

    Rows are written by `insert`, `update` and `delete`: inside a transaction at once; else with the connection's next
    commit, if it is a driver's, which `buffers` rows that nothing external depends on
    (`docs/internals.md#what-a-commit-waits-for`), or in a transaction of their own. Waiting rows are written first in
    the next transaction; a query that reads their tables commits them beforehand. A kill loses them, but only work that
    can be repeated.
    """

    errors: ClassVar[tuple[type[Exception], ...]]
    """What its database raises."""
    blobs: ClassVar[bool] = False
    """Whether what is too long for a row is in rows, too (`blobs.py`), not in files beside the store."""
    row_lock: ClassVar[str] = ""
    """Ends a query whose rows nobody else may change before the commit; empty where writers take turns."""
    change_lock: ClassVar[str] = ""
    """As `row_lock`, for rows that this connection changes."""
    dialect: ClassVar[Dialect]
    json_form: ClassVar[JsonFormat]
    """How records of the audit write JSON."""
    reads: ClassVar[tuple[str, ...]] = ("select", "with")
    """How statements begin that write nothing."""

    def __init__(self, *, buffers: bool) -> None:
        self.buffers = buffers
        self._waiting: dict[object, Write] = {}
        """By what they are replaced by."""
        self.saver: BufferedCheckpoints | None = None
        """Buffers checkpoints of its own until the connection commits."""
        self._check: Callable[[], None] | None = None
        self.write_lock = threading.RLock()
        """Held by the thread that writes, and while rows wait to be written."""
        self.shared_home: Path | None = None
        """This host's state directory, of a store whose rows others may write; None: it is this user's alone."""

    @property
    @abstractmethod
    def in_transaction(self) -> bool: ...

    @abstractmethod
    def note_for_audit(self, write: Write) -> None:
        """Note what the audit records of a write, right before it."""

    @abstractmethod
    def execute_raw(self, sql: str, values: Values = ()) -> Rows:
        """Run any statement on committed rows, for callers that handle buffered ones themselves."""

    @abstractmethod
    def execute_many(self, sql: str, rows: Sequence[Values]) -> None:
        """Run a statement once for each of the rows of values."""

    def execute_pipelined(self, sql: str, values: Values = ()) -> Rows:
        """Query in the open transaction; the answer may be read at its end, so that nobody waits for it before."""
        return FetchedRows(0, self.execute_raw(sql, values).fetchall())

    @abstractmethod
    def database_transaction(self, synced: bool) -> AbstractContextManager[None]:
        """A transaction: it calls `check` and commits at its end, or is taken back."""

    @abstractmethod
    def commit(self) -> None:
        """By itself, so that checks of kills can stand before and after it."""

    def to_stored_value(self, value: object) -> object:
        """A value as a row has it."""
        return int(value) if isinstance(value, bool) else value

    def lock_audit(self) -> None:  # noqa: B027 - SQLite's writers take turns
        """In the open transaction: let nobody else append to the audit's chain."""

    def drop_audit_table(self) -> None:
        """Record nothing in this store."""
        self.execute_raw("drop table audit")

    def write_buffered_rows(self, buffered: Iterable[Write]) -> None:
        """Write buffered rows in the open transaction."""
        for write in buffered:
            self._execute_write(write)

    @abstractmethod
    def list_columns(self, table: str) -> list[Column]:
        """A table's columns, in its order; empty: there is no such table."""

    @abstractmethod
    def close(self) -> None: ...

    @property
    @abstractmethod
    def jobs(self) -> "Jobs":
        """The store's queue."""

    def execute(self, sql: str, values: Values = (), /, *, tables: Collection[str] | None = None) -> Rows:
        """Query. `tables`: those that it reads, where a driver's other waiting rows shall go on waiting."""
        if not sql.lstrip().startswith(self.reads):
            raise RuntimeError(f"expected a query; rows are written by insert, update and delete: {sql}")
        with self.write_lock:
            if not self.in_transaction and (tables is None or self._has_buffered_rows_of(tables)):
                self.flush()
            return self.execute_raw(sql, values)

    def _has_buffered_rows_of(self, tables: Collection[str]) -> bool:
        """Whether a row of one of these tables waits."""
        if self.saver and self.saver.has_buffered_rows and not CHECKPOINTS.isdisjoint(tables):
            return True
        return any(table in tables for write in self._waiting.values() for table in write.tables)

    def insert(self, table: str, row: Row, on_conflict: OnConflict = "refuse") -> Rows:
        """Insert a row of a registered table (column → value). `on_conflict`: what becomes of one with the same key."""
        return self._write_or_buffer(build_insert(table, row, on_conflict))

    def insert_all(
        self, table: str, rows: Iterable[Row], on_conflict: Literal["refuse", "keep"] = "refuse"
    ) -> None:
        """Inside a transaction: insert rows that have the same columns."""
        writes = [build_insert(table, row, on_conflict) for row in rows]
        for write in writes:
            self.note_for_audit(write)
        if writes:
            self.execute_many(writes[0].sql, [write.values for write in writes])

    def update(self, table: str, row: Row, where: Row) -> Rows:
        """Set these columns of the rows that meet every condition."""
        return self._write_or_buffer(build_update(table, row, where))

    def delete(self, table: str, where: Row) -> Rows:
        """Delete the rows that meet every condition."""
        return self._write_or_buffer(build_delete(table, where))

    def run_write_statement(self, sql: str, values: Values, tables: tuple[str, ...]) -> Rows:
        """Write these tables by a statement that `insert`, `update` and `delete` can't express. It changes no audited
        row.
        """
        return self._write_or_buffer(Write(tables, sql, tuple(values), "statement"))

    def _write_or_buffer(self, write: Write) -> Rows:
        with self.write_lock:
            if self.in_transaction:
                return self._execute_write(write)
            if not self.buffers:
                with self.transaction():
                    return self._execute_write(write)
            if not all(TABLE[table].waits for table in write.tables):
                raise RuntimeError(f"a driver's write outside a transaction isn't fenced: {write.sql}")
            identity = write.replacement_key
            self._waiting.pop(identity, None)  # it moves to the end
            self._waiting[identity] = write
            return FetchedRows(0, [])

    def _execute_write(self, write: Write) -> Rows:
        self.note_for_audit(write)
        return self.execute_raw(write.sql, write.values)

    @contextmanager
    def transaction(self, *, synced: bool = False) -> Generator[Self]:
        """Open a write transaction, or join the open one. Must not contain an `await`: it would block others
        (`docs/internals.md#write-transactions`).

        `synced`: it and all earlier commits survive a power cut.
        """
        with self.write_lock:
            if self.in_transaction:
                yield self
                return
            with self.database_transaction(synced):
                self.write_buffered_rows(self._waiting.values())
                if self.saver:
                    self.saver.write_buffered_checkpoints()
                yield self
            self._waiting.clear()
            if self.saver:
                self.saver.mark_buffer_written()

    def flush(self, *, drop_on_failure: bool = False) -> None:
        """Commit buffered rows, if any. `drop_on_failure`: if that fails they are dropped, as after a kill."""
        with self.write_lock:
            if self.in_transaction or not (self._waiting or (self.saver and self.saver.has_buffered_rows)):
                return
            try:
                with self.transaction():
                    pass
            except Exception:
                if drop_on_failure:
                    self._waiting.clear()
                    if self.saver:
                        self.saver.drop_buffer()
                raise

    def set_commit_check(self, check: Callable[[], None]) -> None:
        """Call `check` as part of each commit: what it raises takes the transaction back."""
        self._check = check

    def run_commit_check(self) -> None:
        """Raise what the guard says against a commit."""
        if self._check:
            self._check()


class ChangeDetector(Protocol):
    """Detects writes to the store. Callable from one thread at a time."""

    def __call__(self) -> bool:
        """True if the store changed since the last call, and on the first. An unreadable store counts as unchanged."""
        ...

    def close(self) -> None: ...


class Adapter(ABC):
    """The database of one store; what only a file has to say is empty for others."""

    connection: ClassVar[type[Connection]]

    def __init__(self, path: Path) -> None:
        """`path` names the store; its folder may say where it is."""
        self.path = path

    @abstractmethod
    def connect(
        self,
        synchronous: Literal["NORMAL", "FULL"],
        *,
        buffers: bool = False,
        patience_s: float = BUSY_TIMEOUT_S,
    ) -> Connection:
        """For writing. `patience_s`: how long it waits for other writers."""

    @abstractmethod
    def connect_reader(self) -> Connection | None:
        """A connection that only reads, whose rows know their columns' names; None: there is no store yet."""

    @abstractmethod
    def is_schema_current(self, conn: Connection) -> bool | None:
        """Whether the tables are those of this version; None: there are none yet.

        Raises `StoreError` if they are a newer program's.
        """

    @abstractmethod
    def create_or_migrate_schema(self, conn: Any) -> None:
        """Make the tables, or what a store of an earlier version lacks of them."""

    @abstractmethod
    def explain_errors(self) -> AbstractContextManager[None]:
        """Convert errors of the database and the disk to one line that says what to do."""

    @abstractmethod
    def make_change_detector(self) -> ChangeDetector: ...

    def read_only_reason(self) -> str:
        """Why whoever signs in to the store may change nothing in it; empty: they may."""
        return ""

    def find_writing_process(self) -> int | None:
        """Pid of the process that every other writer waits for; None: nobody, or unknown."""
        return None

    def find_damaged_pages(self, conn: Connection, *, quick: bool) -> list[str]:  # noqa: ARG002
        """What it finds wrong with its file; `quick`: at most one line, and indexes aren't compared."""
        return []

    def count_free_bytes(self, conn: Connection) -> int:  # noqa: ARG002
        """Bytes of the file that hold nothing."""
        return 0

    def shrink_file(self, conn: Connection) -> None:  # noqa: B027 - a server does it by itself
        """Give free pages back; not while others use the store."""
