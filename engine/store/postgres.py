"""postgres: the store in PostgreSQL (14 or newer): its version, and who may write to it."""

from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Any, Literal

import psycopg

from interlock.engine.store.connection import Adapter, Connection
from interlock.engine.store.database import shown
from interlock.engine.store.postgres_connection import CHANNEL, PostgresConnection
from interlock.engine.store.postgres_schema import SCHEMA_VERSION, definitions
from interlock.engine.store.postgres_sessions import READS, connected, explained, named
from interlock.services.files import disk
from interlock.state.clock import follow, unix_time
from interlock.state.errors import ConfigError, StoreError

_OLDEST = 140000
"""Server version: 14."""


class Postgres(Adapter):
    connection = PostgresConnection

    def connect(
        self,
        synchronous: Literal["NORMAL", "FULL"],  # noqa: ARG002 - only a driver's commits may wait for the disk
        *,
        buffers: bool = False,
        patience_s: float = disk.BUSY_TIMEOUT_S,
    ) -> PostgresConnection:
        limits = f"-c lock_timeout={int(patience_s * 1000)} -c idle_in_transaction_session_timeout=10000"
        # Whatever the server's default is. A driver waits for the disk where that is asked for, as with SQLite.
        options = f"{limits} -c synchronous_commit={'off' if buffers else 'on'}"
        return PostgresConnection(self.path, connected(self.path, options), buffers=buffers)

    def connect_reader(self) -> PostgresConnection:
        session = connected(self.path, READS)
        session.conn.row_factory = named
        return PostgresConnection(self.path, session)

    def is_current(self, conn: Connection) -> bool | None:
        session = conn.session if isinstance(conn, PostgresConnection) else None
        if session and session.current:
            return True
        about = (
            "select current_setting('server_version_num')::int, extract(epoch from clock_timestamp())::float8"
        )
        server, clock = conn.execute(about).fetchone()
        follow(clock)
        if server < _OLDEST:
            raise StoreError(
                f"The server of {shown(self.path)!r} is PostgreSQL {server // 10000}; expected 14 or newer."
            )
        found = max((made for made, at in _versions(conn).items() if at), default=0)
        if found > SCHEMA_VERSION:
            raise StoreError(
                f"The store {shown(self.path)!r} was written by a newer Interlock (version {found}, this one reads "
                f"{SCHEMA_VERSION}). Upgrade, or choose another with INTERLOCK_STORE."
            )
        current = found == SCHEMA_VERSION
        if session:
            session.current = current
        return current if found else None

    def migrate(self, conn: PostgresConnection) -> None:
        """Unless somebody made the tables by `for_administrators`: then it begins the audit only."""
        with conn.transaction():
            by_hand = _versions(conn).get(SCHEMA_VERSION) == 0
            for statement in () if by_hand else definitions():
                conn.raw.execute(statement.encode())
            conn.audited()
            conn.execute(
                "insert into store_version values (?, ?) on conflict (version) do update set at = excluded.at",
                (SCHEMA_VERSION, unix_time()),
            )

    def explained(self) -> AbstractContextManager[None]:
        return explained(self.path)

    def changes(self) -> "_Changes":
        return _Changes(self.path)

    def only_reads(self) -> str:
        with self.explained(), closing(self.connect_reader()) as conn:
            role, may, standby = conn.execute(
                "select current_user, coalesce(has_table_privilege(to_regclass('runs'), 'insert'), true), "
                "pg_is_in_recovery()"
            ).fetchone()
        if standby:
            return "The store's server is a standby, which can only be read."
        return "" if may else f"Role {role!r} of the store's database may only look."


def _versions(conn: Connection) -> dict[int, float]:
    """Versions of the schema that were made, and when; 0: by `for_administrators`, without an audit."""
    (there,) = conn.execute("select to_regclass('store_version') is not null").fetchone()
    return (
        dict(conn.execute("select version, at from store_version order by version").fetchall())
        if there
        else {}
    )


class _Changes:
    """Listens to commits."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._conn: psycopg.Connection[Any] | None = None

    def __call__(self) -> bool:
        try:
            if self._conn is None:
                self._conn = connected(self._path, "").conn
                self._conn.execute(f"listen {CHANNEL}".encode())
                return True
            return bool([*self._conn.notifies(timeout=0)])
        except (psycopg.Error, StoreError, ConfigError):
            self.close()
            return False

    def close(self) -> None:
        if self._conn is not None:
            self._conn.close()
            self._conn = None
