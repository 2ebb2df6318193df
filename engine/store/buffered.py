"""buffered: what the connections of all databases share: turns of threads, and rows that wait for a commit."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from typing import Self

from interlock.engine.store.audit import Audit
from interlock.engine.store.connection import Rows, Source, Values


class BufferedConnection(ABC):
    """`Connection`, but for what only its database knows."""

    blobs: bool = False
    row_lock: str = ""
    reads: tuple[str, ...] = ("select", "with")
    """How statements begin that write nothing."""

    def __init__(self, *, buffers: bool) -> None:
        self.buffers = buffers
        self._waiting: dict[object, tuple[str, Values]] = {}
        """By row, where one is named."""
        self._tables: set[str] = set()
        """Tables with buffered rows."""
        self._sources: list[Source] = []
        self._check: Callable[[], None] | None = None
        self._turn = threading.RLock()
        self._audit: Audit | None = None

    @property
    @abstractmethod
    def in_transaction(self) -> bool: ...

    @abstractmethod
    def stored(self, sql: str, values: Values = ()) -> Rows: ...

    @abstractmethod
    def begun(self, synced: bool) -> AbstractContextManager[None]:
        """A transaction: it calls `check` and commits at its end, or is taken back."""
        ...

    def execute(self, sql: str, values: Values = (), /) -> Rows:
        with self._turn:
            if not self.in_transaction:
                if self._check and not sql.lstrip().startswith(self.reads):
                    raise RuntimeError(f"a driver's write outside a transaction isn't fenced: {sql}")
                if self._tables and any(table in sql for table in self._tables):
                    self.flush()
            return self.stored(sql, values)

    @contextmanager
    def transaction(self, *, synced: bool = False) -> Generator[Self]:
        with self._turn:
            if self.in_transaction:
                yield self
                return
            with self.begun(synced):
                for sql, values in self._waiting.values():
                    self.stored(sql, values)
                for source in self._sources:
                    source.write()
                yield self
            self._forget()
            for source in self._sources:
                source.written()

    def later(self, table: str, sql: str, values: Values, row: object = None) -> None:
        with self._turn:
            if self.buffers and not self.in_transaction:
                key = row or object()
                self._waiting.pop(key, None)  # it moves to the end
                self._waiting[key] = (sql, values)
                self._tables.add(table)
            else:
                with self.transaction():
                    self.stored(sql, values)

    def join(self, source: Source) -> None:
        self._sources.append(source)

    def flush(self, *, last: bool = False) -> None:
        with self._turn:
            if self.in_transaction or not (self._waiting or any(source.waits for source in self._sources)):
                return
            try:
                with self.transaction():
                    pass
            except Exception:
                if last:
                    self._forget()
                    for source in self._sources:
                        source.give_up()
                raise

    def guard(self, check: Callable[[], None]) -> None:
        self._check = check

    def check(self) -> None:
        """Raise what the guard says against a commit."""
        if self._check:
            self._check()

    def _forget(self) -> None:
        self._waiting.clear()
        self._tables.clear()
