"""fence: a driver that lost its run can write nothing of it (`engine.md` 17).

TEMP triggers on the driver's own connections; people's decisions come through connections without them.
"""

import sqlite3
from collections.abc import Generator
from contextlib import contextmanager

from interlock.engine.lease import Lease
from interlock.state.errors import BusyError

_STALE = "stale lease"
_TABLES = {
    "checkpoints": "thread_id",
    "writes": "thread_id",
    "chain": "run",
    "model_calls": "run",
    "reservations": "run",
    "journal": "run",
    "decisions": "run",
    "hook_calls": "run",
    "approvals": "run",
    "steps": "run",
    "runs": "run",
}
"""Every table that a driver writes, and the column that names the run."""
_ROWS = {"insert": "new", "update": "old", "delete": "old"}


def fence(conn: sqlite3.Connection, lease: Lease) -> None:
    """From here on `conn` writes rows of the lease's run only, and only while the lease is held.

    The tables must exist. A refused write is a `sqlite3.IntegrityError`; `fenced` makes it a `BusyError`.
    """

    def my_epoch(run: str) -> int:
        return lease.epoch if run == lease.run and lease.held else -1

    conn.create_function("my_epoch", 1, my_epoch)
    for table, column in _TABLES.items():
        for event, row in _ROWS.items():
            conn.execute(
                f"create temp trigger fence_{table}_{event} before {event} on main.{table} "
                f"when (select epoch from main.lease where run = {row}.{column}) "
                f"is not my_epoch({row}.{column}) "
                f"begin select raise(abort, '{_STALE}'); end"
            )


@contextmanager
def fenced(conn: sqlite3.Connection, lease: Lease) -> Generator[None]:
    """A write that the fence refused, as one line that names the process which drives the run now."""
    try:
        yield
    except sqlite3.IntegrityError as error:
        if str(error) != _STALE:
            raise
        raise lost(conn, lease) from error


def lost(conn: sqlite3.Connection, lease: Lease) -> BusyError:
    """What to tell when the run was taken over."""
    row = conn.execute("select pid, host, epoch from lease where run = ?", (lease.run,)).fetchone()
    if row is None:
        return BusyError(
            f"This process lost the run {lease.run!r}: it was removed. List runs with: interlock runs"
        )
    if row[2] == lease.epoch:
        return BusyError(
            f"This process no longer drives the run {lease.run!r}: it released it before this write."
        )
    return BusyError(
        f"This process lost the run {lease.run!r} to pid {row[0]} on {row[1]}, after giving no sign of life "
        f"for too long. What it did is kept; look with: interlock show {lease.run}"
    )
