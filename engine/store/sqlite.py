"""sqlite: the store in one SQLite file (WAL): a connection to it, the version, and what only a file has to say."""

import os
import sqlite3
from collections.abc import Generator, Iterable, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from importlib.resources import files
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from interlock.engine.store.audit import AuditWriter, is_audited, start_audit_chain
from interlock.engine.store.connection import (
    Adapter,
    Column,
    Connection,
    Dialect,
    FetchedRows,
    JsonFormat,
    Rows,
    Values,
)
from interlock.engine.store.tables import Write
from interlock.services.files import disk
from interlock.services.files.disk import ensure_private_file
from interlock.state.errors import StoreError

if TYPE_CHECKING:
    from interlock.engine.store.wakes import Wakes

_KINDS = {"text": str, "blob": bytes, "integer": int, "int": int, "real": (int, float)}
"""As declared, and as SQLite declares columns of a table that a query made: `int`."""


class SqliteConnection(Connection):
    """It remembers which files it opened: writes to a deleted one would be lost without an error. Threads take turns: a
    node without `async` journals its effects from its own.
    """

    errors = (sqlite3.Error,)
    reads = ("select", "with", "pragma", "explain")
    json_form = JsonFormat((",", ":"), short_numbers=False)
    dialect = Dialect(
        json_field="json_extract({column}, '$.{field}')",
        now="((julianday('now') - 2440587.5) * 86400)",
        second="cast(strftime('%s', 'now') as integer)",
        day="cast(strftime('%s', 'now', 'start of day') as integer)",
        month="cast(strftime('%s', 'now', 'start of month') as integer)",
        next_month="cast(strftime('%s', 'now', 'start of month', '+1 month') as integer)",
    )

    def __init__(self, path: Path, conn: sqlite3.Connection, *, buffers: bool = False) -> None:
        super().__init__(buffers=buffers)
        self._conn, self._path, self._knows_audit = conn, path, False
        self._audit: AuditWriter | None = None
        self._files = {name: _file_identity(name) for name in (str(path), f"{path}-wal")}

    @property
    def in_transaction(self) -> bool:
        return self._conn.in_transaction

    def note_for_audit(self, write: Write) -> None:
        if self._audit and is_audited(write):
            self._audit.note_write(write)

    def execute_raw(self, sql: str, values: Values = ()) -> Rows:
        if not self.buffers:
            return self._conn.execute(sql, _name_parameters_by_number(values))
        with (
            self.write_lock
        ):  # a row that is fetched while another thread closes the connection would end the process
            found = self._conn.execute(sql, _name_parameters_by_number(values))
            return FetchedRows(found.rowcount, found.fetchall())

    def execute_many(self, sql: str, rows: Sequence[Values]) -> None:
        self._conn.executemany(sql, map(_name_parameters_by_number, rows))

    def write_buffered_rows(self, buffered: Iterable[Write]) -> None:
        for sql, alike in groupby(buffered, attrgetter("sql")):
            writes = [*alike]
            if is_audited(writes[0]):
                super().write_buffered_rows(writes)
            else:
                self.execute_many(sql, [write.values for write in writes])

    @contextmanager
    def database_transaction(self, synced: bool) -> Generator[None]:
        if not self._knows_audit:  # looked for once: the store of a replay has none
            self._knows_audit, self._audit = True, self._open_audit()
        with self._use_full_sync() if synced else nullcontext():
            self._conn.execute("begin immediate")
            try:
                self._check_files_in_place()
                yield
                if self._audit:
                    self._audit.append_noted_writes()
                self.run_commit_check()
                self.commit()
            except BaseException:
                if self._audit:
                    self._audit.discard_notes()
                if self._conn.in_transaction:
                    self._conn.execute("rollback")
                raise
        if self._audit:
            self._audit.save_head_after_commit(synced=synced)

    def commit(self) -> None:
        self._conn.execute("commit")

    def list_columns(self, table: str) -> list[Column]:
        found = self._conn.execute(f"pragma table_info({table})").fetchall()
        return [Column(name, _KINDS[kind.lower()], bool(needed)) for _, name, kind, needed, *_ in found]

    def _open_audit(self) -> AuditWriter | None:
        """None: the store has no chain yet."""
        there = self.execute_raw("select 1 from sqlite_master where name = 'audit'").fetchone()
        return AuditWriter(self, self._path) if there else None

    def begin_audit(self) -> None:
        """Inside the migration: begin the audit's chain."""
        self._audit = start_audit_chain(self, self._path)

    @property
    def jobs(self) -> "Wakes":
        from interlock.engine.store.wakes import Wakes  # only for who has a queue

        return Wakes(self, self._path.parent)

    def close(self) -> None:
        """A thread that a drive left behind can't use it any more: `ProgrammingError`."""
        with self.write_lock:
            if self._audit:
                self._audit.save_head_after_commit(synced=True)
            self._conn.close()

    def _check_files_in_place(self) -> None:
        for path, opened in self._files.items():
            if opened is not None and _file_identity(path) != opened:
                raise StoreError(
                    f"The store {str(self._path)!r} was deleted or replaced while this process used it, so nothing "
                    "more is written. Put it back and go on with: interlock resume latest; or start anew."
                )

    @contextmanager
    def _use_full_sync(self) -> Generator[None]:
        (before,) = self._conn.execute("pragma synchronous").fetchone()
        self._conn.execute("pragma synchronous = full")
        try:
            yield
        finally:
            self._conn.execute(f"pragma synchronous = {before}")


def _file_identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - each transaction pays for it, and Path.stat costs twice as much
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _name_parameters_by_number(values: Values) -> dict[str, object]:
    """Parameters as SQLite takes `$1`, `$2`: by name."""
    return {str(number): value for number, value in enumerate(values, 1)}


SCHEMA_VERSION = 19
"""`PRAGMA user_version`; increases with every change an older Interlock can't read."""
ADDED_COLUMNS = (
    (6, "approvals", "number", "integer", "rowid"),
    (7, "approvals", "seq", "integer", "rowid"),
    (7, "runs", "subtask_of", "text", "json_extract(options, '$.subtask_of')"),
    (10, "runs", "queue", "text", "null"),
    (11, "model_calls", "written_tokens", "integer not null default 0", "0"),
    (11, "model_calls", "usd", "real", "null"),
    (12, "sessions", "chosen", "text not null default '{}'", "'{}'"),
    (15, "lease", "stop", "text", "null"),
)
"""Version, table and column that earlier stores lack, its type, and what it holds for their rows."""
CONVERTED_TABLES = (
    (
        "steps",
        "insert into step_kinds select -row_number() over (), '', '', workflow, node, keys, route from "
        "(select distinct workflow, node, keys, coalesce(route, '') as route from steps_before) as kinds",
        "insert into step_rows (run, seq, task, root_step, superstep, started, nodes) "
        "select s.run, s.seq, s.task, s.root_step, s.superstep, s.started, cast(json_array(json_array("
        "k.kind, 0, cast(s.ms * 1000 as integer), s.namespace, s.reason)) as varchar) from steps_before s "
        "join step_kinds k on k.workflow = s.workflow and k.node = s.node and k.keys = s.keys "
        "and k.route = coalesce(s.route, '')",
    ),
)
"""A table of earlier stores that is a view now, and what takes its rows over from it as `NAME_before`."""
_INDEXES = (
    "runs_updated on runs (updated)",
    "runs_created on runs (created)",
    "runs_workspace on runs (workspace)",
    "runs_loose on runs (run) where queue is not null and status = 'open'",
    "chain_run on chain (run)",
    "chain_parent on chain (parent)",
    "named_files_run on named_files (run)",
    "model_calls_record on model_calls (record)",
    "lease_held on lease (run) where held = 1",
    "approvals_open on approvals (run, asked_at) where answer is null and superseded = 0 and interrupt is not null",
    "snapshots_repository on snapshots (repository)",
    "sessions_run on sessions (run)",
)
"""What a file is searched by beside its keys. Each costs every commit that changes its columns."""
DROP_STATEMENTS = ("drop index if exists model_calls_task",)
_PAGE = 1024
"""Bytes; small, because a commit writes whole pages of many small tables."""
_WAL_WRITE_LOCK = "120"
"""Byte of the `-shm` file that SQLite locks while it writes (WAL_WRITE_LOCK at UNIX_SHM_BASE)."""


class Sqlite(Adapter):
    connection = SqliteConnection

    def connect(
        self,
        synchronous: Literal["NORMAL", "FULL"],
        *,
        buffers: bool = False,
        patience_s: float = disk.BUSY_TIMEOUT_S,
    ) -> SqliteConnection:
        with self.explain_errors():
            with suppress(OSError):  # SQLite says why
                ensure_private_file(self.path)
            conn = sqlite3.connect(
                self.path, timeout=patience_s, isolation_level=None, check_same_thread=False
            )
            try:
                conn.execute(f"pragma page_size={_PAGE}")  # for a new file; existing ones keep theirs
                conn.execute("pragma journal_mode=wal")
                conn.execute(f"pragma synchronous={synchronous}")
                return SqliteConnection(self.path, conn, buffers=buffers)
            except BaseException:
                conn.close()
                raise

    def connect_reader(self) -> SqliteConnection | None:
        if not self.path.exists():
            return None
        conn = sqlite3.connect(self.path, timeout=disk.BUSY_TIMEOUT_S)
        conn.row_factory = sqlite3.Row
        conn.execute("pragma query_only = 1")
        return SqliteConnection(self.path, conn)

    def is_schema_current(self, conn: Connection) -> bool | None:
        (found,) = conn.execute("pragma user_version").fetchone()
        if found > SCHEMA_VERSION:
            raise StoreError(
                f"The store {str(self.path)!r} was written by a newer Interlock (version {found}, this one "
                f"reads {SCHEMA_VERSION}). Upgrade, or choose another with INTERLOCK_HOME."
            )
        return found == SCHEMA_VERSION if found else None

    def create_or_migrate_schema(self, conn: SqliteConnection) -> None:
        folder = files("interlock.engine.store")
        schema, queue = (folder.joinpath(name).read_text("utf-8") for name in ("schema.sql", "queue.sql"))
        with conn.transaction():
            for _, table, name, kind, held in ADDED_COLUMNS:
                columns = {column.name for column in conn.list_columns(table)}
                if columns and name not in columns:
                    conn.execute_raw(f"alter table {table} add column {name} {kind}")
                    conn.execute_raw(f"update {table} set {name} = {held}")
            earlier = [part for part in CONVERTED_TABLES if _has_table(conn, part[0])]
            for name, *_ in earlier:
                conn.execute_raw(f"alter table {name} rename to {name}_before")
            made = (f"create index if not exists {index}" for index in _INDEXES)
            for statement in (*schema.split(";\n"), *queue.split(";\n"), *DROP_STATEMENTS, *made):
                conn.execute_raw(statement)
            for name, *statements in earlier:
                for statement in (*statements, f"drop table {name}_before"):
                    conn.execute_raw(statement)
            conn.begin_audit()
            conn.execute_raw(f"pragma user_version={SCHEMA_VERSION}")

    @contextmanager
    def explain_errors(self) -> Generator[None]:
        with disk.convert_store_errors(self.path, sqlite3.DatabaseError):
            try:
                yield
            except sqlite3.OperationalError:
                self._refuse_newer_store()
                raise

    def _refuse_newer_store(self) -> None:
        """Raises `StoreError` if a newer program changed the store in the meantime, so that statements fail."""
        with suppress(sqlite3.Error):
            if conn := self.connect_reader():
                with closing(conn):
                    self.is_schema_current(conn)

    def make_change_detector(self) -> "_SqliteChangeDetector":
        return _SqliteChangeDetector(self.path)

    def find_writing_process(self) -> int | None:
        """Reads /proc/locks: asking with fcntl takes a descriptor, and closing that would drop SQLite's own locks."""
        try:
            inode = str(Path(f"{self.path}-shm").stat().st_ino)
            lines = Path("/proc/locks").read_text(encoding="ascii").splitlines()
        except OSError:
            return None
        for line in lines:  # `1: POSIX  ADVISORY  WRITE 1234 fd:01:262149 120 120`
            fields = line.split()
            if fields[1] == "POSIX" and fields[3:4] == ["WRITE"] and fields[6:8] == [_WAL_WRITE_LOCK] * 2:
                pid, place = int(fields[4]), fields[5]
                if pid > 0 and place.rpartition(":")[2] == inode:
                    return pid
        return None

    def find_damaged_pages(self, conn: Connection, *, quick: bool) -> list[str]:
        found = conn.execute("pragma quick_check(1)" if quick else "pragma integrity_check")
        return [text for (text,) in found if text != "ok"]

    def count_free_bytes(self, conn: Connection) -> int:
        (free,), (size,) = (
            conn.execute(f"pragma {name}").fetchone() for name in ("freelist_count", "page_size")
        )
        return free * size

    def shrink_file(self, conn: Connection) -> None:
        with suppress(sqlite3.OperationalError):  # busy
            conn.execute_raw("vacuum")
            conn.execute_raw("pragma wal_checkpoint(truncate)")


def is_schema_newer_than_program(conn: Connection) -> bool:
    """Return whether a newer program has changed the schema: this one may end what it began, and begins nothing."""
    return conn.execute("pragma user_version").fetchone()[0] > SCHEMA_VERSION


def _has_table(conn: Connection, name: str) -> bool:
    query = "select 1 from sqlite_master where type = 'table' and name = $1"
    return conn.execute(query, (name,)).fetchone() is not None


class _SqliteChangeDetector:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._conn: sqlite3.Connection | None = None
        self._version = -1

    def __call__(self) -> bool:
        try:
            if self._conn is None:
                self._conn = sqlite3.connect(
                    f"{self._path.as_uri()}?mode=ro", uri=True, timeout=0.1, check_same_thread=False
                )
            (version,) = self._conn.execute("pragma data_version").fetchone()
        except sqlite3.Error:
            return False
        changed, self._version = version != self._version, version
        return changed

    def close(self) -> None:
        if self._conn is not None:
            self._conn.close()
            self._conn = None


def open_sqlite_read_only(path: Path) -> closing[sqlite3.Connection]:
    """A file that isn't ours, to be read only."""
    uri = f"{path.resolve().as_uri()}?mode=ro"
    return closing(sqlite3.connect(uri, uri=True, check_same_thread=False))
