"""postgres_sessions: connections to the server: signing in, a connection's next use, its values and errors."""

import atexit
import os
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from select import POLLIN, poll
from threading import Timer
from typing import Any

import psycopg
from psycopg.adapt import Buffer, Loader
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import TransactionStatus
from psycopg.types.string import TextLoader

from interlock.engine.store import read_store_address, store_address_for_display
from interlock.services.files import disk
from interlock.state.clock import adjust_to_server_clock
from interlock.state.errors import BusyError, ConfigError, StoreError

_SILENCE = {
    "connect_timeout": "5",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "8000",
}
"""What libpq needs to notice a server that vanished: an error after 8.4 s instead of 27 to 54 s."""
_VANISHED = (
    "-c tcp_keepalives_idle=5 -c tcp_keepalives_interval=2 -c tcp_keepalives_count=3 -c tcp_user_timeout=8000"
)
"""The same for the server: it ends a session whose host is gone, whose locks it would keep for hours."""
READS = "-c default_transaction_read_only=on"
_IDLE_S, _KEPT_S = 2.0, 60.0
"""Seconds for which a connection waits for its next use, which saves as much as 30 statements take; and after which
another is made, because somebody may have changed the schema."""
_FULL_S, _AGAIN_S = 5.0, 0.2
"""Seconds for which a server that takes no more connections is asked again, and between two tries."""
_FULL = ("too many clients already", "too many connections for", "connection slots")
_Key = tuple[int, str, str]
"""Process, server and options: sessions with the same are interchangeable."""


@dataclass(eq=False)
class Session:
    """A connection to the server, with what was found out on it."""

    key: _Key
    conn: "psycopg.Connection[Any]"
    made: float
    used: float
    timer: Timer | None = None
    current: bool = False
    """The schema is this version's."""
    audited: bool = False

    def is_reusable(self) -> bool:
        """It is young, outside a transaction, and the server hasn't said anything, as it does at its end."""
        if self.conn.closed or time.monotonic() - self.made > _KEPT_S:
            return False
        told = poll()
        told.register(self.conn.fileno(), POLLIN)
        return self.conn.info.transaction_status == TransactionStatus.IDLE and not told.poll(0)

    def return_to_pool_or_close(self) -> None:
        """For the next use, but not for long: the server has few connections."""
        if not self.is_reusable() or _kept.setdefault(self.key, self) is not self:
            self.conn.close()
        elif self.timer is None:
            self.timer = Timer(_idle_s, _close_session_if_idle, [self])
            self.timer.daemon = True
            self.timer.start()


def limit_connection_idle_time(seconds: float) -> None:
    """From now on, let this process keep a connection that isn't used no longer than this."""
    global _idle_s
    _idle_s = seconds


_idle_s = _IDLE_S
_kept: dict[_Key, Session] = {}


def _close_session_if_idle(session: Session) -> None:
    session.timer = None
    found = _kept.pop(session.key, None)
    if found is session and time.monotonic() - session.used >= _idle_s:
        session.conn.close()
    elif found:
        found.return_to_pool_or_close()


@atexit.register
def _close_pooled_sessions() -> None:
    for session in [*_kept.values()]:
        if session.key[0] == os.getpid():
            session.conn.close()


class _NumericLoader(Loader):
    """A sum of integers is one."""

    def load(self, data: Buffer) -> int | float:
        text = bytes(data)
        return float(text) if b"." in text else int(text)


class _NamedRow(tuple[Any, ...]):
    """A row whose columns are read by place or by name."""

    names: dict[str, int]

    def __getitem__(self, key: Any) -> Any:
        place: Any = self.names[key] if isinstance(key, str) else key
        return super().__getitem__(place)

    def keys(self) -> list[str]:
        return [*self.names]


def named_row_factory(cursor: "psycopg.Cursor[Any]") -> Any:
    return _row_class(tuple(column.name for column in cursor.description or ()))


@lru_cache(maxsize=64)
def _row_class(columns: tuple[str, ...]) -> type[_NamedRow]:
    return type("Row", (_NamedRow,), {"names": {name: place for place, name in enumerate(columns)}})


def build_connection_string(path: Path, **parameters: str) -> str:
    """Return what libpq needs; a password comes from the environment, of which libpq sees nothing secret any more."""
    address, password = read_store_address(path), os.environ.get("PGPASSWORD", "")
    given = conninfo_to_dict(address)
    if password and "password" not in given:
        parameters["password"] = password
    if READS in parameters.get("options", "") and given.get("target_session_attrs") == "read-write":
        parameters["target_session_attrs"] = "primary"  # a session that only reads would be turned away
    options = given.get("options"), parameters.get("options"), _VANISHED
    parameters["options"] = " ".join(str(one) for one in options if one)
    return make_conninfo(address, **{k: v for k, v in _SILENCE.items() if k not in given}, **parameters)


def acquire_session(path: Path, options: str) -> Session:
    """Return a session of its own; `return_to_pool_or_close` it after its use."""
    key = (os.getpid(), read_store_address(path), options)
    now = time.monotonic()
    if (kept := _kept.pop(key, None)) and kept.is_reusable():
        kept.used = now
        return kept
    if kept:
        kept.conn.close()
    with convert_database_errors(path):
        conn = _connect_with_retry(path, options)
        for (clock,) in conn.execute("select extract(epoch from clock_timestamp())::float8"):
            adjust_to_server_clock(clock)
        conn.adapters.register_loader("numeric", _NumericLoader)
        conn.adapters.register_loader("json", TextLoader)
        return Session(key, conn, now, now)


def _connect_with_retry(path: Path, options: str) -> "psycopg.Connection[Any]":
    """Connect; to a server that takes no more connections, as soon as one is free, for some seconds."""
    address = build_connection_string(path, application_name="interlock", options=f"{options} -c jit=off")
    until = time.monotonic() + _FULL_S
    while True:
        try:
            return psycopg.connect(address, autocommit=True)
        except psycopg.OperationalError as error:
            if not _is_out_of_connections(error) or time.monotonic() > until:
                raise
            time.sleep(_AGAIN_S)


def _is_out_of_connections(error: psycopg.Error) -> bool:
    """Whether the server, a database or a role takes no more connections; at sign-in the driver knows no code."""
    said = "" if error.sqlstate else str(error)
    return error.sqlstate == "53300" or any(words in said for words in _FULL)


@contextmanager
def convert_database_errors(path: Path) -> Generator[None]:
    """Convert errors of the database and the disk to one line that says what to do."""
    try:
        yield
    except psycopg.Error as error:
        raise _to_store_error(error, store_address_for_display(path)) from error
    except OSError as error:
        raise disk.to_disk_error(error, path) from error


def _to_store_error(error: psycopg.Error, store: str) -> StoreError | BusyError | ConfigError:
    said = " ".join(str(error.diag.message_primary or error).split()).removeprefix("connection failed: ")
    said = said.partition(" Is the server running on that host")[0].rstrip(".")
    code = error.sqlstate or ""
    if code in ("55P03", "40P01"):  # lock_timeout, deadlock
        return BusyError(f"The store {store!r} is busy: other processes write to it. Try again.")
    if code == "53100":
        return StoreError(
            f"No space left on the server of {store!r}. Free some, then try again. Workers go on by themselves."
        )
    refused = said.partition("FATAL: ")[2] if not code else ""  # at sign-in the driver knows no code
    if _is_out_of_connections(error):
        return StoreError(
            f"The server of {store!r} takes no more connections ({said}). See who holds them: interlock fleet; or "
            "raise max_connections."
        )
    if code == "42501":
        return StoreError(
            f"Missing rights in {store!r}: {said}. Grant them with: interlock fleet init --print"
        )
    if code.startswith("28") or code == "3D000" or (refused and "the database system is" not in refused):
        return ConfigError(f"Can't sign in to {store!r}: {said}. Check INTERLOCK_STORE.")
    if isinstance(error, psycopg.OperationalError) and (not code or code.startswith(("08", "57P"))):
        return StoreError(
            f"Can't reach the store {store!r}: {said}. Check that its server runs, then try again."
        )
    return StoreError(f"The store {store!r} failed: {said}. Check it with: interlock doctor --store")
