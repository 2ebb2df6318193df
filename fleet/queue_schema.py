"""queue_schema: the queue, which is Procrastinate's: its tables, and its program.

Procrastinate is imported where it is used: one of its packages starts a process when it is imported.
"""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interlock.engine.store.connection import Connection
from interlock.state.errors import ConfigError

if TYPE_CHECKING:
    from procrastinate import App

_INDEXES = (
    ("interlock_jobs_line", "(queue_name, priority) where status = 'todo'"),
    ("interlock_jobs_user", "(queue_name, (args ->> 'user'), priority) where status = 'todo'"),
)

_POOL: dict[str, Any] = {"min_size": 1, "max_size": 4, "max_idle": 5.0}
"""A worker's connections to its queue, which most of the time does nothing: the server has few."""


def make_queue_app(store: Path | None = None) -> "App":
    """Return the queue as a worker of this database uses it; without a store it uses that one's own connections."""
    from interlock.fleet.postgres_sessions import build_connection_string

    try:
        from procrastinate import App, PsycopgConnector, SyncPsycopgConnector
    except ImportError as error:
        raise ConfigError(
            "Workers of PostgreSQL need the extra `fleet`. Run: interlock install fleet"
        ) from error
    if store is None:
        return App(connector=SyncPsycopgConnector())
    return App(
        connector=PsycopgConnector(
            conninfo=build_connection_string(store, application_name="interlock"), **_POOL
        )
    )


@contextmanager
def unwrap_queue_errors() -> Generator[None]:
    """Raise the database's own error instead of the queue's, which says nothing."""
    from procrastinate.exceptions import ConnectorException

    try:
        yield
    except ConnectorException as error:
        raise error.__cause__ or error from None


def create_queue_tables(store: Path) -> None:
    """Make Procrastinate's tables, if they are missing."""
    with make_queue_app(store).open() as opened:
        if not opened.check_connection():
            opened.schema_manager.apply_schema()


def create_queue_indexes(conn: Connection) -> None:
    """What jobs are searched by beside Procrastinate's own indexes, if it is missing."""
    for name, columns in _INDEXES:
        (found,) = conn.execute("select to_regclass($1) is not null", (name,)).fetchone()
        if not found:
            with conn.transaction():
                conn.execute_raw(f"create index {name} on procrastinate_jobs {columns}")


def queue_tables_sql() -> str:
    """Return SQL that makes Procrastinate's tables. Raises `ConfigError` without the extra."""
    indexes = [f"create index {name} on procrastinate_jobs {columns};" for name, columns in _INDEXES]
    return "\n".join([make_queue_app().schema_manager.get_schema(), *indexes])
