"""leases: who drives a run, as the store knows it, and the fence that keeps everybody else from writing its rows."""

import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from typing import NamedTuple, Protocol

from interlock.engine.store.tables import TABLES
from interlock.services.process.identity import Owner
from interlock.services.sqlite import transaction
from interlock.state.errors import BusyError, StoreError

_COLUMNS = "host, boot, pid, started, epoch, beat, held"


class LeaseRow(NamedTuple):
    owner: Owner
    epoch: int
    beat: int
    held: bool


def read_lease(conn: sqlite3.Connection, run: str) -> LeaseRow | None:
    row = conn.execute(f"select {_COLUMNS} from lease where run = ?", (run,)).fetchone()
    return row and LeaseRow(Owner(*row[:4]), row[4], row[5], bool(row[6]))


def take(conn: sqlite3.Connection, run: str, owner: Owner, seen: LeaseRow | None) -> int | LeaseRow:
    """Give the run to this owner, and return the new epoch; if its lease isn't as `seen`, return that instead."""
    with transaction(conn):
        row = read_lease(conn, run)
        if row is not None and row.held and row != seen:
            return row
        epoch, beats = (row.epoch + 1, row.beat + 1) if row else (1, 1)
        conn.execute(
            f"insert or replace into lease (run, {_COLUMNS}) values (?, ?, ?, ?, ?, ?, ?, 1)",
            (run, *owner, epoch, beats),
        )
    return epoch


def impatient(conn: sqlite3.Connection, milliseconds: int) -> None:
    """Let the connection wait for other writers no longer than this."""
    conn.execute(f"pragma busy_timeout = {milliseconds}")


def beat(conn: sqlite3.Connection, run: str, epoch: int) -> bool:
    """Send a heartbeat. False: the row is no longer of this epoch, or the store is gone from its path."""
    return _update(conn, "beat = beat + 1", run, epoch)


def give_back(conn: sqlite3.Connection, run: str, epoch: int) -> bool:
    return _update(conn, "held = 0", run, epoch)


def _update(conn: sqlite3.Connection, change: str, run: str, epoch: int) -> bool:
    try:
        with transaction(conn):
            rows = conn.execute(f"update lease set {change} where run = ? and epoch = ?", (run, epoch))
            return rows.rowcount == 1
    except StoreError:
        return False
    except sqlite3.Error:
        # A busy store costs a beat, not the run; a lasting error (a full disk) hits the driver at its next
        # write. If `held` stays set, this process's end or silence frees the run as well.
        return True


class Held(Protocol):
    """A lease as its owner knows it."""

    run: str
    epoch: int
    held: bool


_STALE = "stale lease"
_ROWS = {"insert": "new", "update": "old", "delete": "old"}


def fence(conn: sqlite3.Connection, lease: Held) -> None:
    """Restrict `conn` to writing rows of the lease's run, and only while the lease is held.

    The tables must exist. A refused write is a `sqlite3.IntegrityError`; `fenced` makes it a `BusyError`.
    """

    def my_epoch(run: str) -> int:
        return lease.epoch if run == lease.run and lease.held else -1

    conn.create_function("my_epoch", 1, my_epoch)
    for table in (table for table in TABLES if table.driven):
        column = table.owner
        for event, row in _ROWS.items():
            conn.execute(
                f"create temp trigger fence_{table.name}_{event} before {event} on main.{table.name} "
                f"when (select epoch from main.lease where run = {row}.{column}) "
                f"is not my_epoch({row}.{column}) "
                f"begin select raise(abort, '{_STALE}'); end"
            )


@contextmanager
def fenced(conn: sqlite3.Connection, lease: Held) -> Generator[None]:
    """Turn a write refused by the fence into an error that names the process driving the run now."""
    try:
        yield
    except sqlite3.IntegrityError as error:
        if str(error) != _STALE:
            raise
        raise lost(conn, lease) from error


def lost(conn: sqlite3.Connection, lease: Held) -> BusyError:
    """The error for a run that was taken over, removed or released."""
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
