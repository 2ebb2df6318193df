"""connection: what the store asks of a database, and what all share: turns of threads, rows that wait for a commit."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, Self

from interlock.engine.store.audit import Audit
from interlock.engine.store.jobs import Jobs
from interlock.services.files.disk import BUSY_TIMEOUT_S
from interlock.state.errors import StoreError

Values = Sequence[object] | Mapping[str, object]


class Rows(Protocol):
    """What a statement found, or how many rows it changed."""

    @property
    def rowcount(self) -> int: ...
    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...
    def __iter__(self) -> Iterator[Any]: ...


class Fetched:
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
    def waits(self) -> bool: ...
    def write(self) -> None:
        """Write them, inside the transaction."""
        ...

    def written(self) -> None:
        """They are committed."""
        ...

    def give_up(self) -> None:
        """They are lost."""
        ...


NO_SERVER = (
    "Workers drive runs that are in PostgreSQL, and this store is a file. Name the database with "
    "INTERLOCK_STORE=postgresql://USER@HOST/DATABASE, and set it up with: interlock fleet init"
)


class Column(NamedTuple):
    name: str
    kind: type | tuple[type, ...]
    """What its values are in Python."""
    needed: bool
    """Whether it takes no null."""


class Connection(ABC):
    """One connection to the store, in autocommit mode. Statements are SQL that SQLite and PostgreSQL both speak.

    A driver's connection `buffers` rows that nothing external depends on until its next commit
    (`docs/internals.md#what-a-commit-waits-for`). They are written first in the next transaction; a statement naming
    one of their tables commits them beforehand. A kill loses them, but only work that can be repeated.
    """

    errors: ClassVar[tuple[type[Exception], ...]]
    """What its database raises."""
    blobs: ClassVar[bool] = False
    """Whether what is too long for a row is in rows, too (`blobs.py`), not in files beside the store."""
    row_lock: ClassVar[str] = ""
    """Ends a query whose rows nobody else may change before the commit; empty where writers take turns."""
    reads: ClassVar[tuple[str, ...]] = ("select", "with")
    """How statements begin that write nothing."""

    def __init__(self, *, buffers: bool) -> None:
        self.buffers = buffers
        self._waiting: dict[object, tuple[str, Values]] = {}
        """By row, where one is named."""
        self._tables: set[str] = set()
        """Tables with buffered rows."""
        self.saver: BufferedCheckpoints | None = None
        """Buffers checkpoints of its own until the connection commits."""
        self._check: Callable[[], None] | None = None
        self.turn = threading.RLock()
        """Held by the thread that writes, and while rows wait to be written."""
        self._audit: Audit | None = None
        self.shared_home: Path | None = None
        """This host's state directory, of a store whose rows others may write; None: it is this user's alone."""

    @property
    @abstractmethod
    def in_transaction(self) -> bool: ...

    @abstractmethod
    def stored(self, sql: str, values: Values = ()) -> Rows:
        """Query committed rows only, for callers that handle buffered ones themselves."""

    @abstractmethod
    def begun(self, synced: bool) -> AbstractContextManager[None]:
        """A transaction: it calls `check` and commits at its end, or is taken back."""

    @abstractmethod
    def commit(self) -> None:
        """By itself, so that checks of kills can stand before and after it."""

    @abstractmethod
    def write_waiting(self, statements: Iterable[tuple[str, Values]]) -> None:
        """Write buffered rows in the open transaction."""

    @abstractmethod
    def columns(self, table: str) -> list[Column]:
        """A table's columns, in its order; empty: there is no such table."""

    @abstractmethod
    def close(self) -> None: ...

    @property
    def jobs(self) -> Jobs:
        """Raises `StoreError` for a database whose runs no worker drives."""
        raise StoreError(NO_SERVER)

    def execute(self, sql: str, values: Values = (), /) -> Rows:
        """Run a statement; one that writes belongs into a transaction."""
        with self.turn:
            if not self.in_transaction:
                if self._check and not sql.lstrip().startswith(self.reads):
                    raise RuntimeError(f"a driver's write outside a transaction isn't fenced: {sql}")
                if self._tables and any(table in sql for table in self._tables):
                    self.flush()
            return self.stored(sql, values)

    @contextmanager
    def transaction(self, *, synced: bool = False) -> Generator[Self]:
        """Open a write transaction, or join the open one. Must not contain an `await`: it would block others
        (`docs/internals.md#write-transactions`).

        `synced`: it and all earlier commits survive a power cut.
        """
        with self.turn:
            if self.in_transaction:
                yield self
                return
            with self.begun(synced):
                self.write_waiting(self._waiting.values())
                if self.saver:
                    self.saver.write()
                yield self
            self._forget()
            if self.saver:
                self.saver.written()

    def later(self, table: str, sql: str, values: Values, row: object = None) -> None:
        """Write a row that nothing external depends on: with the driver's next commit; on other connections at once.

        `row`: what names the row if all that was written of it before is written anew.
        """
        with self.turn:
            if self.buffers and not self.in_transaction:
                if row is None:
                    row = object()
                else:
                    self._waiting.pop(row, None)  # it moves to the end
                self._waiting[row] = (sql, values)
                self._tables.add(table)
            else:
                with self.transaction():
                    self.stored(sql, values)

    def flush(self, *, last: bool = False) -> None:
        """Commit buffered rows, if any. `last`: if that fails they are dropped, as after a kill."""
        with self.turn:
            if self.in_transaction or not (self._waiting or (self.saver and self.saver.waits)):
                return
            try:
                with self.transaction():
                    pass
            except Exception:
                if last:
                    self._forget()
                    if self.saver:
                        self.saver.give_up()
                raise

    def guard(self, check: Callable[[], None]) -> None:
        """Call `check` as part of each commit: what it raises takes the transaction back."""
        self._check = check

    def check(self) -> None:
        """Raise what the guard says against a commit."""
        if self._check:
            self._check()

    def _forget(self) -> None:
        self._waiting.clear()
        self._tables.clear()


class Changes(Protocol):
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
    def is_current(self, conn: Connection) -> bool | None:
        """Whether the tables are those of this version; None: there are none yet.

        Raises `StoreError` if they are a newer program's.
        """

    @abstractmethod
    def migrate(self, conn: Any) -> None:
        """Make the tables, or what a store of an earlier version lacks of them."""

    @abstractmethod
    def explained(self) -> AbstractContextManager[None]:
        """Convert errors of the database and the disk to one line that says what to do."""

    @abstractmethod
    def changes(self) -> Changes: ...

    def only_reads(self) -> str:
        """Why whoever signs in to the store may change nothing in it; empty: they may."""
        return ""

    def writer(self) -> int | None:
        """Pid of the process that every other writer waits for; None: nobody, or unknown."""
        return None

    def damaged_pages(self, conn: Connection, *, quick: bool) -> list[str]:  # noqa: ARG002
        """What it finds wrong with its file; `quick`: at most one line, and indexes aren't compared."""
        return []

    def free_bytes(self, conn: Connection) -> int:  # noqa: ARG002
        """Bytes of the file that hold nothing."""
        return 0

    def shrink(self, conn: Connection) -> None:  # noqa: B027 - a server does it by itself
        """Give free pages back; not while others use the store."""
