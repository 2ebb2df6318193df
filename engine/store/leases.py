"""leases: which process drives a run, requests to stop it, and the fence that keeps others from writing its rows."""

from typing import Literal, NamedTuple, Protocol

from interlock.engine.store.connection import Connection
from interlock.engine.store.runs import find_root_task, list_run_and_subtasks
from interlock.engine.store.tables import Plus, Row
from interlock.services.process.identity import ProcessIdentity, is_alive
from interlock.state.errors import BusyError, StoreError

StopAsked = Literal["stop", "cancel", "timeout"]
"""`stop`, `timeout`: the run can be resumed; `cancel`: it ends."""
_COLUMNS = "host, boot, pid, started, epoch, beat, held"


class LeaseRow(NamedTuple):
    owner: ProcessIdentity
    epoch: int
    beat: int
    held: bool


def read_lease(conn: Connection, run: str) -> LeaseRow | None:
    row = conn.execute(f"select {_COLUMNS} from lease where run = $1", (run,), tables=("lease",)).fetchone()
    return row and LeaseRow(ProcessIdentity(*row[:4]), row[4], row[5], bool(row[6]))


def claim_lease(
    conn: Connection, run: str, owner: ProcessIdentity, last_seen: LeaseRow | None
) -> int | LeaseRow:
    """Give the run to this owner, and return the new epoch; if its lease isn't as `last_seen`, return that instead."""
    with conn.transaction():
        row = read_lease(conn, run)
        if row is not None and row.held and row != last_seen:
            return row
        epoch, beats = (row.epoch + 1, row.beat + 1) if row else (1, 1)
        kept = {"run": run, **owner._asdict(), "epoch": epoch, "beat": beats, "held": 1, "stop": None}
        conn.insert("lease", kept, "replace")
    return epoch


def send_heartbeat(conn: Connection, run: str, epoch: int) -> bool | None:
    """Send a heartbeat. False: the row is no longer of this epoch, or the store is gone from its path.

    None: the store didn't take it.
    """
    return _update_lease(conn, {"beat": Plus(1)}, run, epoch)


def release_lease(conn: Connection, run: str, epoch: int) -> bool | None:
    """Returns as `beat` does."""
    return _update_lease(conn, {"held": 0}, run, epoch)


def _update_lease(conn: Connection, change: Row, run: str, epoch: int) -> bool | None:
    try:
        with conn.transaction():
            return conn.update("lease", change, {"run": run, "epoch": epoch}).rowcount == 1
    except StoreError:
        return False
    except conn.errors:
        # A busy store costs a beat, not the run; a lasting error (a full disk) hits the driver at its next
        # write. If `held` stays set, this process's end or silence frees the run as well.
        return None


def request_stop(conn: Connection, run: str, kind: "StopAsked") -> ProcessIdentity | None:
    """Inside a transaction: ask the run's driver to stop; its next heartbeat reads it. None: nobody drives the run."""
    row = read_lease(conn, run)
    if row is None or not row.held or is_alive(row.owner) is False:
        return None
    conn.update("lease", {"stop": kind}, {"run": run, "epoch": row.epoch})
    return row.owner


def record_stop_reason(conn: Connection, run: str, epoch: int, kind: StopAsked) -> None:
    """Note why the process of the drive with this epoch ends."""
    with conn.transaction():
        conn.update("lease", {"stop": kind}, {"run": run, "epoch": epoch, "stop": None})


def read_stop_request(conn: Connection, run: str, epoch: int) -> "StopAsked | None":
    """What somebody asks of the driver with this epoch; None also where the store doesn't answer."""
    try:
        row = conn.execute(
            "select stop from lease where run = $1 and epoch = $2", (run, epoch), tables=("lease",)
        ).fetchone()
    except (StoreError, *conn.errors):
        return None  # the next heartbeat asks again
    return row and row[0]


def revoke_lease(conn: Connection, run: str) -> None:
    """Inside a transaction: free a lease whose owner doesn't count any more; if it wakes up, it can't write."""
    conn.update("lease", {"held": 0, "epoch": Plus(1)}, {"run": run, "held": 1})


def revoke_leases_of_process(conn: Connection, run: str, owner: ProcessIdentity) -> None:
    """Inside a transaction: free the leases of a process that has ended: those of the run and of its family."""
    for one in list_run_and_subtasks(conn, find_root_task(conn, run)):
        row = read_lease(conn, one)
        if row and row.held and row.owner[:3] == owner[:3]:
            revoke_lease(conn, one)


def refuse_driven_run(conn: Connection, run: str) -> None:
    lease = read_lease(conn, run)
    if lease and lease.held and is_alive(lease.owner) is not False:
        owner = lease.owner
        raise BusyError(f"Run {run!r} is driven by process {owner.pid} on {owner.host}. Stop it there first.")


class HeldLease(Protocol):
    """A driver's right to write the rows of its run."""

    run: str
    epoch: int
    held: bool


def fence_commits(conn: Connection, lease: HeldLease) -> None:
    """Let `conn` commit only while the lease is held: whoever lost the run gets a `BusyError` in place of a commit."""

    def check() -> None:
        query = f"select epoch from lease where run = $1{conn.row_lock}"
        row = conn.execute(query, (lease.run,), tables=("lease",)).fetchone()
        if row is None or row[0] != lease.epoch or not lease.held:
            raise lost_run_error(conn, lease)

    conn.set_commit_check(check)


def lost_run_error(conn: Connection, lease: HeldLease) -> BusyError:
    """The error for a run that was taken over, removed or released."""
    row = conn.execute(
        "select pid, host, epoch from lease where run = $1", (lease.run,), tables=("lease",)
    ).fetchone()
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
