"""postgres: the store in PostgreSQL (14 or newer): its connections, its version, and everything that only it knows."""

import json
import os
import re
import time
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

try:
    import psycopg
    from psycopg.adapt import Buffer, Loader
    from psycopg.conninfo import conninfo_to_dict, make_conninfo
    from psycopg.pq import TransactionStatus
    from psycopg.types.string import TextLoader
except ImportError as error:
    from interlock.state.errors import ConfigError

    raise ConfigError(
        "Runs in PostgreSQL need the extra `fleet`. Install it with: pip install 'interlock-agent[fleet]'"
    ) from error

from interlock.engine.store.audit import begin
from interlock.engine.store.connection import BufferedConnection, Column, Connection, Rows, Values
from interlock.engine.store.database import address_of, shown
from interlock.engine.store.postgres_audit import NOTES, dialect
from interlock.engine.store.postgres_schema import SCHEMA_VERSION, definitions
from interlock.services import faults
from interlock.state.errors import BusyError, ConfigError, StoreError

ERRORS = (psycopg.Error,)
BLOBS = True
_OLDEST = 140000
"""Server version: 14."""
_SILENCE = {
    "connect_timeout": "5",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "8000",
}
"""What libpq needs to notice a server that vanished: an error after 8.4 s instead of 27 to 54 s."""
_ONE_WRITER, _ONE_CHAIN = 0x1A7E_0001, 0x1A7E_0002
"""Advisory locks: of whoever writes and isn't a driver (as SQLite's write lock), and of the audit's end."""
_KINDS: dict[str, type | tuple[type, ...]] = {
    "text": str,
    "bytea": bytes,
    "bigint": int,
    "double precision": (int, float),
}
_CHANNEL = "interlock"
_END = f"select current_setting('{NOTES}', true), pg_notify('{_CHANNEL}', '')".encode()
"""Before each commit: what the triggers noted; and whoever follows is told."""


class _Number(Loader):
    """A sum of integers is one."""

    def load(self, data: Buffer) -> int | float:
        text = bytes(data)
        return float(text) if b"." in text else int(text)


class _Row(tuple[Any, ...]):
    """A row whose columns are read by place or by name."""

    names: dict[str, int]

    def __getitem__(self, key: Any) -> Any:
        place: Any = self.names[key] if isinstance(key, str) else key
        return super().__getitem__(place)

    def keys(self) -> list[str]:
        return [*self.names]


def _named(cursor: "psycopg.Cursor[Any]") -> Any:
    names = {column.name: place for place, column in enumerate(cursor.description or ())}
    return type("Row", (_Row,), {"names": names})


class PostgresConnection(BufferedConnection):
    """Implements `Connection`.

    Whoever writes and isn't a driver waits for the others, as with SQLite; drivers write their own runs' rows only,
    and lock their lease's row before they commit.
    """

    blobs: bool = True
    row_lock: str = " for share"
    errors: tuple[type[Exception], ...] = ERRORS

    def __init__(self, path: Path, conn: "psycopg.Connection[Any]", *, buffers: bool = False) -> None:
        super().__init__(buffers=buffers)
        self._conn, self._path = conn, path

    @property
    def raw(self) -> "psycopg.Connection[Any]":
        """For what writes rows of its own in this transaction: the queue."""
        return self._conn

    @property
    def in_transaction(self) -> bool:
        return self._conn.info.transaction_status != TransactionStatus.IDLE

    def stored(self, sql: str, values: Values = ()) -> Rows:
        given: Any = (
            {name: _sent(value) for name, value in values.items()}
            if isinstance(values, dict)
            else [_sent(value) for value in values]
        )
        return self._conn.execute(translated(sql), given)

    def executemany(self, sql: str, rows: Sequence[Sequence[object]]) -> None:
        with self._conn.cursor() as cursor:
            cursor.executemany(translated(sql), rows)

    @contextmanager
    def begun(self, synced: bool) -> Generator[None]:
        self._audit = self._audit or self._found_audit()
        self._conn.execute("begin")
        try:
            if not self.buffers:
                self._conn.execute("select pg_advisory_xact_lock(%s)", (_ONE_WRITER,))
            yield
            self.check()
            notes = self._conn.execute(_END).fetchone()
            if self._audit:
                self._take(notes[0] if notes else None)
                self._audit.append()
            commit(self._conn)
        except BaseException:
            if self._audit:
                self._audit.notes.clear()
            if not self._conn.closed and self.in_transaction:
                self._conn.execute("rollback")
            raise
        if self._audit:
            self._audit.committed(synced=synced)

    def _take(self, notes: str | None) -> None:
        """What the triggers noted in this transaction."""
        assert self._audit
        lines = (notes or "").splitlines()
        if lines:
            self._conn.execute("select pg_advisory_xact_lock(%s)", (_ONE_CHAIN,))
        for line in lines:
            self._audit.note(*json.loads(line))

    def _found_audit(self) -> Any:
        from interlock.engine.store.audit import Audit

        there = self.stored(
            "select 1 from pg_tables where tablename = 'audit' and schemaname = current_schema"
        )
        return Audit(self, self._path) if there.fetchone() else None

    def columns(self, table: str) -> list[Column]:
        found = self.stored(
            "select column_name, data_type, is_nullable = 'NO' from information_schema.columns "
            "where table_name = ? and table_schema = current_schema order by ordinal_position",
            (table,),
        )
        return [Column(name, _KINDS[kind], needed) for name, kind, needed in found]

    def audited(self) -> None:
        """Inside the migration: begin the audit's chain."""
        self._audit = begin(self, self._path)

    def __del__(self) -> None:
        self._conn.close()  # as SQLite's connections are, without a warning

    def close(self) -> None:
        if self._audit:
            self._audit.committed(synced=True)
        self._conn.close()


def commit(conn: "psycopg.Connection[Any]") -> None:
    """By itself, so that checks of kills can stand before and after it."""
    conn.execute("commit")


def _sent(value: object) -> object:
    """PostgreSQL has no NUL in texts, and takes no boolean for a number."""
    if isinstance(value, str):
        return value.replace("\0", "\N{SYMBOL FOR NULL}") if "\0" in value else value
    return int(value) if isinstance(value, bool) else value


_PLACES = re.compile(r"'[^']*'|\?|(?<![:\w]):([a-z_]+)|%")


@lru_cache(maxsize=512)
def translated(sql: str) -> bytes:
    """The store's SQL, as psycopg takes it."""

    def other(found: re.Match[str]) -> str:
        text = found[0]
        if name := found[1]:
            return f"%({name})s"
        return "%s" if text == "?" else text.replace("%", "%%")

    return _PLACES.sub(other, dialect(sql)).encode()


def exists(path: Path) -> bool:  # noqa: ARG001 - whether it answers shows when it is asked
    return True


def connect(
    path: Path,
    synchronous: Literal["NORMAL", "FULL"],  # noqa: ARG001 - every commit is durable
    *,
    buffers: bool = False,
    patience_s: float = faults.BUSY_TIMEOUT_S,
) -> PostgresConnection:
    """Connect for writing. `patience_s`: how long it waits for other writers."""
    limits = f"-c lock_timeout={int(patience_s * 1000)} -c idle_in_transaction_session_timeout=10000"
    options = f"{limits} -c synchronous_commit=on"  # whatever the server's default is
    return PostgresConnection(path, _connected(path, options), buffers=buffers)


def connect_reader(path: Path) -> PostgresConnection:
    """A connection that only reads, whose rows know their columns' names."""
    # A session that only reads isn't `read-write`, which an address asks for to find the primary among its hosts.
    wanted = conninfo_to_dict(address_of(path)).get("target_session_attrs")
    primary = {"target_session_attrs": "primary"} if wanted == "read-write" else {}
    conn = _connected(path, "-c default_transaction_read_only=on", **primary)
    conn.row_factory = _named
    return PostgresConnection(path, conn)


def sign_in(path: Path, **more: str) -> str:
    """What libpq needs; a password comes from the environment, of which libpq sees nothing secret any more."""
    address, password = address_of(path), os.environ.get("PGPASSWORD", "")
    given = conninfo_to_dict(address)
    if password and "password" not in given:
        more["password"] = password
    return make_conninfo(address, **{k: v for k, v in _SILENCE.items() if k not in given}, **more)


def _connected(path: Path, options: str, **more: str) -> "psycopg.Connection[Any]":
    with explained(path):
        address = sign_in(path, application_name="interlock", options=options, **more)
        conn: psycopg.Connection[Any] = psycopg.connect(address, autocommit=True)
        conn.adapters.register_loader("numeric", _Number)
        conn.adapters.register_loader("json", TextLoader)
        return conn


@contextmanager
def explained(path: Path) -> Generator[None]:
    """Convert errors of the database and the disk to one line that says what to do."""
    try:
        yield
    except psycopg.Error as error:
        raise _explain(error, shown(path)) from error
    except OSError as error:
        raise faults.explain_disk(error, path) from error


def _explain(error: psycopg.Error, store: str) -> StoreError | BusyError | ConfigError:
    said = " ".join(str(error.diag.message_primary or error).split())
    said = (
        said.removeprefix("connection failed: ")
        .partition(" Is the server running on that host")[0]
        .rstrip(".")
    )
    code = error.sqlstate or ""
    if code in ("55P03", "40P01"):  # lock_timeout, deadlock
        return BusyError(f"The store {store!r} is busy: other processes write to it. Try again.")
    if code == "53100":
        return StoreError(
            f"No space left on the server of {store!r}. Free some, then try again. Workers go on by themselves."
        )
    refused = said.partition("FATAL: ")[2] if not code else ""  # at sign-in the driver knows no code
    if code == "53300" or "too many connections" in refused or "connection slots" in refused:
        return StoreError(
            f"The server of {store!r} takes no more connections ({said}). Raise max_connections."
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


def version(conn: Connection, path: Path) -> int:
    """Version of the schema; 0: there is none yet. Raises `StoreError` if it is newer than this program's."""
    (server,) = conn.execute("select current_setting('server_version_num')::int").fetchone()
    if server < _OLDEST:
        raise StoreError(
            f"The server of {shown(path)!r} is PostgreSQL {server // 10000}; expected 14 or newer."
        )
    found = max((made for made, at in _versions(conn).items() if at), default=0)
    if found > SCHEMA_VERSION:
        raise StoreError(
            f"The store {shown(path)!r} was written by a newer Interlock (version {found}, this one reads "
            f"{SCHEMA_VERSION}). Upgrade, or choose another with INTERLOCK_STORE."
        )
    return found


def _versions(conn: Connection) -> dict[int, float]:
    """Versions of the schema that were made, and when; 0: by `for_administrators`, without an audit."""
    (there,) = conn.execute("select to_regclass('store_version') is not null").fetchone()
    return (
        dict(conn.execute("select version, at from store_version order by version").fetchall())
        if there
        else {}
    )


def migrate(conn: PostgresConnection) -> None:
    """Make the tables, unless somebody did by `for_administrators`, and begin the audit."""
    with conn.transaction():
        by_hand = _versions(conn).get(SCHEMA_VERSION) == 0
        for statement in () if by_hand else definitions():
            conn.raw.execute(statement.encode())
        conn.audited()
        conn.execute(
            "insert into store_version values (?, ?) on conflict (version) do update set at = excluded.at",
            (SCHEMA_VERSION, time.time()),
        )


def damaged_pages(conn: Connection, *, quick: bool) -> list[str]:  # noqa: ARG001 - the server watches its own files
    return []


def free_bytes(conn: Connection) -> int:  # noqa: ARG001 - the server keeps its own files
    return 0


def shrink(conn: Connection) -> None:
    """The server does it."""


def only_reads(path: Path) -> str:
    with explained(path), closing(connect_reader(path)) as conn:
        role, may, standby = conn.execute(
            "select current_user, coalesce(has_table_privilege(to_regclass('runs'), 'insert'), true), "
            "pg_is_in_recovery()"
        ).fetchone()
    if standby:
        return "The store's server is a standby, which can only be read."
    return "" if may else f"Role {role!r} of the store's database may only look."


def writer_of(path: Path) -> int | None:  # noqa: ARG001 - a server's writers don't wait for one process
    return None


def changes(path: Path) -> "_Changes":
    return _Changes(path)


class _Changes:
    """Listens to commits."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._conn: psycopg.Connection[Any] | None = None

    def __call__(self) -> bool:
        try:
            if self._conn is None:
                self._conn = _connected(self._path, "")
                self._conn.execute(f"listen {_CHANNEL}".encode())
                return True
            return bool([*self._conn.notifies(timeout=0)])
        except (psycopg.Error, StoreError, ConfigError):
            self.close()
            return False

    def close(self) -> None:
        if self._conn is not None:
            self._conn.close()
            self._conn = None
