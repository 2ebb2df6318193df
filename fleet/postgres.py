"""postgres: the store in PostgreSQL (14 or newer): a connection to it, its version, and who may write to it."""

import json
from collections.abc import Generator, Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

import psycopg
from psycopg.pq import PipelineStatus, TransactionStatus

from interlock.engine.store import store_address_for_display
from interlock.engine.store.audit import AuditWriter, is_audited, start_audit_chain
from interlock.engine.store.connection import Adapter, Column, Connection, Dialect, JsonFormat, Rows, Values
from interlock.engine.store.procrastinate_jobs import JSON_FIELD, ProcrastinateJobs
from interlock.engine.store.tables import Write
from interlock.fleet.postgres_schema import COMPLETE, SCHEMA_VERSION, table_definitions_sql
from interlock.fleet.postgres_sessions import (
    READS,
    Session,
    acquire_session,
    convert_database_errors,
    named_row_factory,
)
from interlock.fleet.queue_schema import make_queue_app
from interlock.services.files import disk
from interlock.state.clock import unix_time
from interlock.state.errors import ConfigError, StoreError

_ONE_WRITER, _ONE_CHAIN, _ONE_COUNT = 0x1A7E_0001, 0x1A7E_0002, 0x1A7E_0003
"""Advisory locks: of whoever writes and isn't a driver (as SQLite's write lock), of the audit's end, and of whoever
counts what limits are of: nobody else reads the figures before its commit."""
_ALONE = f"begin; select pg_advisory_xact_lock({_ONE_WRITER})".encode()
_KINDS: dict[str, type | tuple[type, ...]] = {
    "text": str,
    "bytea": bytes,
    "bigint": int,
    "double precision": (int, float),
}
CHANNEL = "interlock"
_END = f"select pg_notify('{CHANNEL}', '')".encode()
"""Before each commit: whoever follows is told."""


class PostgresConnection(Connection):
    """Whoever writes and isn't a driver waits for the others, as with SQLite; drivers write their own runs' rows only,
    and lock their lease's row before they commit.
    """

    errors = (psycopg.Error,)
    blobs = True
    row_lock = " for share"
    change_lock = " for no key update"
    json_form = JsonFormat((", ", " : "), short_numbers=True)
    dialect = Dialect(
        json_field=JSON_FIELD,
        now="cast(extract(epoch from clock_timestamp()) as double precision)",
        second="cast(floor(extract(epoch from clock_timestamp())) as bigint)",
        day="cast(extract(epoch from date_trunc('day', clock_timestamp() at time zone 'UTC')) as bigint)",
        month="cast(extract(epoch from date_trunc('month', clock_timestamp() at time zone 'UTC')) as bigint)",
        next_month="cast(extract(epoch from date_trunc('month', clock_timestamp() at time zone 'UTC') "
        "+ interval '1 month') as bigint)",
        lock_counts=f"select pg_advisory_xact_lock({_ONE_COUNT})",
    )

    def __init__(self, path: Path, session: Session, *, buffers: bool = False) -> None:
        super().__init__(buffers=buffers)
        self.session: Session | None = session
        """None: closed."""
        self._path, self.shared_home = path, path.parent
        self._begun = False
        self._audit: AuditWriter | None = None
        self._sending = ExitStack()
        """What lets statements go without waiting for answers."""
        self._pipeline: psycopg.Pipeline | None = None

    @property
    def unpipelined_connection(self) -> "psycopg.Connection[Any]":
        """For what writes rows of its own in this transaction, and reads each answer: the queue."""
        self._sending.close()
        return self._psycopg_connection

    @property
    def jobs(self) -> ProcrastinateJobs:
        return ProcrastinateJobs(self, self.unpipelined_connection, make_queue_app)

    @property
    def _psycopg_connection(self) -> "psycopg.Connection[Any]":
        if self.session is None:
            raise psycopg.OperationalError("the connection is closed")
        return self.session.conn

    @property
    def in_transaction(self) -> bool:
        return self._begun or self._psycopg_connection.info.transaction_status != TransactionStatus.IDLE

    def note_for_audit(self, write: Write) -> None:
        if self._audit and is_audited(write):
            self._audit.note_write(write)

    def execute_raw(self, sql: str, values: Values = ()) -> Rows:
        found = self.execute_pipelined(sql, values)
        return self._sync_pipeline(found) if sql.lstrip().startswith(self.reads) else found

    def execute_pipelined(self, sql: str, values: Values = ()) -> "psycopg.Cursor[Any]":
        return self._make_cursor().execute(sql.encode(), [*map(self.to_stored_value, values)])

    def _make_cursor(self) -> "psycopg.Cursor[Any]":
        """One that takes parameters as the server does: `$1`, `$2`."""
        return psycopg.RawCursor(self._psycopg_connection)

    def _sync_pipeline(self, cursor: "psycopg.Cursor[Any]") -> "psycopg.Cursor[Any]":
        """Wait in a way that the server takes for idleness: it ends a transaction whose process is paused meanwhile."""
        if self._pipeline and cursor.pgresult is None:
            self._pipeline.sync()
        return cursor

    def execute_many(self, sql: str, rows: Sequence[Values]) -> None:
        with self._make_cursor() as cursor:
            cursor.executemany(sql.encode(), [[*map(self.to_stored_value, row)] for row in rows])

    def to_stored_value(self, value: object) -> object:
        """PostgreSQL has no NUL in texts, and takes no boolean for a number."""
        if isinstance(value, str):
            return value.replace("\0", "\N{SYMBOL FOR NULL}") if "\0" in value else value
        return super().to_stored_value(value)

    def lock_audit(self) -> None:
        self.execute_raw("select pg_advisory_xact_lock($1)", (_ONE_CHAIN,))

    def drop_audit_table(self) -> None:
        super().drop_audit_table()
        if self.session:
            self.session.audited, self._audit = False, None

    def write_buffered_rows(self, buffered: Iterable[Write]) -> None:
        plain = dict[str, list[Write]]()
        for write in buffered:
            if (
                write.kind == "insert"
                and write.on_conflict == "refuse"
                and bytes not in map(type, write.values)
            ):
                plain.setdefault(write.sql, []).append(write)
            else:
                self._execute_write(write)
        for writes in plain.values():
            self._insert_rows_as_json(writes)

    def _insert_rows_as_json(self, writes: Sequence[Write]) -> None:
        """Insert rows with the same columns by one statement, whose only parameter they are, in JSON."""
        table, names = writes[0].tables[0], ", ".join(writes[0].row)
        for write in writes:
            self.note_for_audit(write)
        rows = [dict(zip(one.row, map(self.to_stored_value, one.values), strict=True)) for one in writes]
        sql = f"insert into {table} ({names}) select {names} from json_populate_recordset(null::{table}, $1)"
        self.execute_raw(sql, (json.dumps(rows, ensure_ascii=False),))

    @contextmanager
    def database_transaction(self, synced: bool) -> Generator[None]:
        self._audit = self._audit or self._find_audit()
        conn = self._psycopg_connection
        if self.buffers:  # a driver waits for an answer only where it reads one
            self._enter_pipeline()
        try:
            conn.execute(b"begin" if self.buffers else _ALONE)
            if self.buffers and synced:
                conn.execute(b"set local synchronous_commit = on")
            self._begun = True
            yield
            self._enter_pipeline()
            ended = conn.execute(_END)
            self.run_commit_check()
            if self._audit:
                self._sync_pipeline(ended)
                self._audit.append_noted_writes()
            self.commit()
        except BaseException:
            self._roll_back()
            raise
        finally:
            self._begun = False
        if self._audit:
            self._audit.save_head_after_commit(synced=synced)

    def commit(self) -> None:
        self._psycopg_connection.execute(b"commit")
        self._sending.close()

    def _enter_pipeline(self) -> None:
        """From now on, let statements go without waiting for their answers."""
        if self._psycopg_connection.pgconn.pipeline_status == PipelineStatus.OFF:
            self._pipeline = self._sending.enter_context(self._psycopg_connection.pipeline())
            self._sending.callback(setattr, self, "_pipeline", None)

    def _roll_back(self) -> None:
        if self._audit:
            self._audit.discard_notes()
        with suppress(psycopg.Error):
            self._sending.close()
        if (
            not self._psycopg_connection.closed
            and self._psycopg_connection.info.transaction_status != TransactionStatus.IDLE
        ):
            self._psycopg_connection.execute(b"rollback")

    def _find_audit(self) -> AuditWriter | None:
        assert self.session
        if not self.session.audited:
            query = "select 1 from pg_tables where tablename = 'audit' and schemaname = current_schema"
            self.session.audited = self.execute_raw(query).fetchone() is not None
        return AuditWriter(self, self._path) if self.session.audited else None

    def list_columns(self, table: str) -> list[Column]:
        found = self.execute_raw(
            "select column_name, data_type, is_nullable = 'NO' from information_schema.columns "
            "where table_name = $1 and table_schema = current_schema order by ordinal_position",
            (table,),
        )
        return [Column(name, _KINDS[kind], needed) for name, kind, needed in found]

    def begin_audit(self) -> None:
        """Inside the migration: begin the audit's chain."""
        self._audit = start_audit_chain(self, self._path)

    def __del__(self) -> None:
        if self.session:
            self.session.conn.close()  # as SQLite's connections are, without a warning

    def close(self) -> None:
        if self._audit:
            self._audit.save_head_after_commit(synced=True)
        session, self.session = self.session, None
        if session:
            session.return_to_pool_or_close()


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
        return PostgresConnection(self.path, acquire_session(self.path, options), buffers=buffers)

    def connect_reader(self) -> PostgresConnection:
        session = acquire_session(self.path, READS)
        session.conn.row_factory = named_row_factory
        return PostgresConnection(self.path, session)

    def is_schema_current(self, conn: Connection) -> bool | None:
        session = conn.session if isinstance(conn, PostgresConnection) else None
        if session and session.current:
            return True
        (server,) = conn.execute("select current_setting('server_version_num')::int").fetchone()
        if server < _OLDEST:
            raise StoreError(
                f"The server of {store_address_for_display(self.path)!r} is PostgreSQL "
                f"{server // 10000}; expected 14 or newer."
            )
        found = max((made for made, at in _read_schema_version_times(conn).items() if at), default=0)
        if found > SCHEMA_VERSION:
            raise StoreError(
                f"The store {store_address_for_display(self.path)!r} was written by a newer Interlock "
                f"(version {found}, this one reads {SCHEMA_VERSION}). Upgrade, or choose another with INTERLOCK_STORE."
            )
        current = found >= COMPLETE
        if session:
            session.current = current
        return current if found else None

    def create_or_migrate_schema(self, conn: PostgresConnection) -> None:
        """Unless somebody made the tables by `administrator_sql`: then it begins the audit only."""
        with conn.transaction():
            by_hand = max(
                (
                    made
                    for made, at in _read_schema_version_times(conn).items()
                    if made >= COMPLETE and not at
                ),
                default=None,
            )
            if by_hand is None:
                conn.unpipelined_connection.execute(table_definitions_sql().encode())
            conn.begin_audit()
            version = by_hand or SCHEMA_VERSION
            conn.insert("store_version", {"version": version, "at": unix_time()}, "replace")

    def explain_errors(self) -> AbstractContextManager[None]:
        return convert_database_errors(self.path)

    def make_change_detector(self) -> "_CommitListener":
        return _CommitListener(self.path)

    def read_only_reason(self) -> str:
        with self.explain_errors(), closing(self.connect_reader()) as conn:
            role, may, standby = conn.execute(
                "select current_user, coalesce(has_table_privilege(to_regclass('runs'), 'insert'), true), "
                "pg_is_in_recovery()"
            ).fetchone()
        if standby:
            return "The store's server is a standby, which can only be read."
        return "" if may else f"Role {role!r} of the store's database may only look."


def _read_schema_version_times(conn: Connection) -> dict[int, float]:
    """Return versions of the schema that were made, and when; 0: by `administrator_sql`, without an audit."""
    (there,) = conn.execute("select to_regclass('store_version') is not null").fetchone()
    return (
        dict(conn.execute("select version, at from store_version order by version").fetchall())
        if there
        else {}
    )


def is_schema_newer_than_program(conn: Connection) -> bool:
    """Return whether a newer program has changed the schema: this one may end what it began, and begins nothing."""
    return max(_read_schema_version_times(conn), default=0) > SCHEMA_VERSION


class _CommitListener:
    """Listens to commits."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._conn: psycopg.Connection[Any] | None = None

    def __call__(self) -> bool:
        try:
            if self._conn is None:
                self._conn = acquire_session(self._path, "").conn
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
