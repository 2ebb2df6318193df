"""leases: who drives a run, as the store knows it, and the fence that keeps everybody else from writing its rows."""

from typing import NamedTuple, Protocol

from interlock.engine.store import put
from interlock.engine.store.connection import Connection
from interlock.services.process.identity import Owner
from interlock.state.errors import BusyError, StoreError

_COLUMNS = "host, boot, pid, started, epoch, beat, held"


class LeaseRow(NamedTuple):
    owner: Owner
    epoch: int
    beat: int
    held: bool


def read_lease(conn: Connection, run: str) -> LeaseRow | None:
    row = conn.execute(f"select {_COLUMNS} from lease where run = ?", (run,)).fetchone()
    return row and LeaseRow(Owner(*row[:4]), row[4], row[5], bool(row[6]))


def take(conn: Connection, run: str, owner: Owner, seen: LeaseRow | None) -> int | LeaseRow:
    """Give the run to this owner, and return the new epoch; if its lease isn't as `seen`, return that instead."""
    with conn.transaction():
        row = read_lease(conn, run)
        if row is not None and row.held and row != seen:
            return row
        epoch, beats = (row.epoch + 1, row.beat + 1) if row else (1, 1)
        kept = {"run": run, **owner._asdict(), "epoch": epoch, "beat": beats, "held": 1}
        put(conn, "lease", kept, "replace")
    return epoch


def beat(conn: Connection, run: str, epoch: int) -> bool | None:
    """Send a heartbeat. False: the row is no longer of this epoch, or the store is gone from its path.

    None: the store didn't take it.
    """
    return _update(conn, "beat = beat + 1", run, epoch)


def give_back(conn: Connection, run: str, epoch: int) -> bool | None:
    """Returns as `beat` does."""
    return _update(conn, "held = 0", run, epoch)


def _update(conn: Connection, change: str, run: str, epoch: int) -> bool | None:
    try:
        with conn.transaction():
            rows = conn.execute(f"update lease set {change} where run = ? and epoch = ?", (run, epoch))
            return rows.rowcount == 1
    except StoreError:
        return False
    except conn.errors:
        # A busy store costs a beat, not the run; a lasting error (a full disk) hits the driver at its next
        # write. If `held` stays set, this process's end or silence frees the run as well.
        return None


class Held(Protocol):
    """A lease as its owner knows it."""

    run: str
    epoch: int
    held: bool


def fence(conn: Connection, lease: Held) -> None:
    """Let `conn` commit only while the lease is held: whoever lost the run gets a `BusyError` in place of a commit."""

    def check() -> None:
        query = f"select epoch from lease where run = ?{conn.row_lock}"
        row = conn.execute(query, (lease.run,)).fetchone()
        if row is None or row[0] != lease.epoch or not lease.held:
            raise lost(conn, lease)

    conn.guard(check)


def lost(conn: Connection, lease: Held) -> BusyError:
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
