"""queue: a job says "drive this run until it parks or ends". It is put in the transaction that gives a reason to.

The jobs are Procrastinate's, in the store's database. The truth about a run is its row, never its job's status.
"""

import os
from typing import Any

from interlock.engine.store.connection import Connection
from interlock.engine.store.postgres import PostgresConnection
from interlock.state.errors import StoreError

try:
    from procrastinate import App, PsycopgConnector, SyncPsycopgConnector
    from procrastinate.exceptions import AlreadyEnqueued
except ImportError as error:
    from interlock.state.errors import ConfigError

    raise ConfigError(
        "Runs that workers drive need the extra `fleet`. Install it with: pip install 'interlock-agent[fleet]'"
    ) from error

DRIVE = "interlock.drive"
_OF_HOST = "host:"


def host_queue() -> str:
    """The queue of runs whose files are on this host."""
    return f"{_OF_HOST}{os.uname().nodename}"


def put_job(conn: Connection, run: str, queue: str, after_s: int = 0) -> None:
    """Inside a transaction: let a worker of this queue drive the run; nothing if its job waits already.

    Raises `StoreError` if the store has no queue.
    """
    if not has_queue(conn):
        raise StoreError("The store has no queue yet. Set it up with: interlock fleet init")
    app = App(connector=SyncPsycopgConnector())
    later: Any = {"schedule_in": {"seconds": after_s}} if after_s else {}
    drive = app.configure_task(
        DRIVE, lock=run, queueing_lock=run, queue=queue, connection=_raw(conn), **later
    )
    try:
        with _raw(conn).transaction():
            drive.defer(run=run)
    except AlreadyEnqueued:
        pass  # whoever takes that one sees what was decided since


def hand_to_workers(conn: Connection, run: str) -> bool:
    """Inside a transaction: put a job for the run if it is one that workers drive."""
    (queue,) = conn.execute("select queue from runs where run = ?", (run,)).fetchone()
    if queue:
        put_job(conn, run, queue)
    return bool(queue)


def has_queue(conn: Connection) -> bool:
    (found,) = conn.execute("select to_regclass('procrastinate_jobs') is not null").fetchone()
    return found


def take_back(conn: Connection, run: str) -> list[int]:
    """Remove the run's waiting job; returns the jobs that a worker is driving, which are asked to stop."""
    manager: Any = App(connector=SyncPsycopgConnector()).job_manager
    rows = conn.execute(
        "select id, cast(status as text) from procrastinate_jobs where lock = ? and status in ('todo', 'doing')",
        (run,),
    ).fetchall()
    for job, _ in rows:
        manager.cancel_job_by_id(job, abort=True, connection=_raw(conn))
    return [job for job, status in rows if status == "doing"]


def _raw(conn: Connection) -> Any:
    assert isinstance(conn, PostgresConnection)
    return conn.raw


def make_queue(address: str) -> None:
    """Make Procrastinate's tables, if they are missing."""
    with App(connector=SyncPsycopgConnector(conninfo=address)).open() as app:
        if not app.check_connection():
            app.schema_manager.apply_schema()


def async_app(address: str) -> App:
    """The queue as a worker uses it."""
    return App(connector=PsycopgConnector(conninfo=address))
