"""lease: one driver per run. The owner sends heartbeats; only a dead or silent one loses the run.

Rule: `docs/internals.md#one-driver`.
"""

import asyncio
import os
import threading
import time
from collections.abc import Callable
from contextlib import closing

from interlock.engine.driver.stop import Stop, await_unless_stopped, schedule_exit_if_blocked
from interlock.engine.options import HEARTBEAT_STALE_S
from interlock.engine.store import Store, explain_store_errors, read_store_address
from interlock.engine.store.connection import Connection
from interlock.engine.store.leases import (
    LeaseRow,
    StopAsked,
    claim_lease,
    read_lease,
    read_stop_request,
    record_stop_reason,
    release_lease,
    send_heartbeat,
)
from interlock.services.process.identity import (
    ProcessIdentity,
    current_process_identity,
    is_alive,
    kill_process_and_wait,
)
from interlock.state.errors import BusyError, InterlockError

_HEARTBEAT_S = 2.0
"""Longest time between heartbeats; also how long a challenger waits to learn that an owner is well."""
_PATIENCE_S = 1.0
"""Longest a heartbeat waits for another writer; `release` may wait as long."""
_CUT_OFF_PART = 0.75
"""Part of the time after which another host takes a run over that its driver may be without a server's store."""


class Lease:
    """The right to drive a run, shared by everything that writes for this drive."""

    def __init__(
        self,
        connect: Callable[[], Connection],
        run: str,
        owner: ProcessIdentity,
        epoch: int,
        heartbeat_s: float,
        on_lost: Callable[[], None],
        max_offline_s: float | None = None,
        on_stop_request: Callable[[], None] = lambda: None,
    ) -> None:
        """`connect`: makes a connection that nothing else uses.

        `on_stop_request`: called when somebody asks it to stop. `max_offline_s`: seconds without the store after which
        it counts as lost; None: it keeps the run.
        """
        self.run = run
        self.owner = owner
        self.epoch = epoch
        self.lost = False
        """Another process took the run over, or it was removed."""
        self.held = True
        """Neither lost nor released."""
        self.stop_request: StopAsked | None = None
        """What somebody asks of this drive through the store."""
        self._connect, self._conn = connect, connect()
        self._beat_s, self._on_lost, self._alone_s, self._on_stop = (
            heartbeat_s,
            on_lost,
            max_offline_s,
            on_stop_request,
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._send_heartbeats, name=f"heartbeat {run}", daemon=True)
        self._thread.start()

    def release(self) -> None:
        """Give the run back; later writes through fenced connections are refused."""
        self.held = False
        self._stop.set()
        self._thread.join()

    def record_forced_exit_reason(self, why: StopAsked) -> None:
        """Note why the process ends in the middle of the drive, whose code heeds nothing. From any thread."""
        with closing(self._connect()) as conn:
            record_stop_reason(conn, self.run, self.epoch, why)

    def _send_heartbeats(self) -> None:
        """Send heartbeats until released or lost."""
        heard = time.monotonic()
        try:
            while not self._stop.wait(self._beat_s):
                sent = time.monotonic()
                taken = send_heartbeat(self._conn, self.run, self.epoch)
                if taken:
                    heard = sent
                if taken is False or self._is_offline_too_long(heard):
                    self.lost, self.held = True, False
                    self._on_lost()
                    if taken is None:
                        self._retry_release_in_background(self._alone_s or 0)
                    return
                if self._poll_stop_request():
                    self._on_stop()
            self._poll_stop_request()
            if release_lease(self._conn, self.run, self.epoch) is None:
                self._retry_release_in_background(self._beat_s)
        finally:
            self._conn.close()

    def _poll_stop_request(self) -> bool:
        """Whether somebody asks for something new since the last look."""
        before, self.stop_request = (
            self.stop_request,
            read_stop_request(self._conn, self.run, self.epoch) or self.stop_request,
        )
        return self.stop_request != before

    def _retry_release_in_background(self, after_s: float) -> None:
        """Give the run back once the store takes it: whoever drives it next would end this process as a silent owner.

        `after_s`: not before, so that what it drove has ended.
        """

        def insist() -> None:
            time.sleep(after_s)
            taken = None
            while taken is None:
                try:
                    with closing(self._connect()) as conn:
                        taken = release_lease(conn, self.run, self.epoch)
                except InterlockError:
                    taken = None if self._alone_s else False  # a store in a file is gone for good
                time.sleep(self._beat_s)

        threading.Thread(target=insist, name=f"return of {self.run}", daemon=True).start()

    def _is_offline_too_long(self, last_contact: float) -> bool:
        """It has been without the store for so long that another host may take the run over: what runs must end."""
        return self._alone_s is not None and time.monotonic() - last_contact > self._alone_s


async def acquire_lease(
    store: Store,
    run: str,
    *,
    stale_after_s: float = HEARTBEAT_STALE_S,
    identity: ProcessIdentity | None = None,
    wait_if_alive: bool = True,
    on_lost: Callable[[], None] = lambda: None,
    on_stop: Callable[[], None] = lambda: None,
) -> Lease:
    """Become the driver of `run`, ending an owner that is silent for `stale_after_s`.

    Raises `BusyError` as soon as the owner shows a sign of life; with `wait=False` at once if it may be alive.
    `on_lost`, and `on_stop` when somebody asks it to stop, are called from the heartbeat thread.
    """
    me = identity or current_process_identity()
    with explain_store_errors(store.path), closing(store.connect()) as conn:
        seen = read_lease(conn, run)
        if seen is not None and seen.held and is_alive(seen.owner) is not False:
            if not wait_if_alive:
                raise _busy_error(run, seen)
            seen = await _wait_for_or_kill_silent_owner(conn, store, run, seen, stale_after_s)
        epoch = claim_lease(conn, run, me, seen)
        if isinstance(epoch, LeaseRow):
            raise _busy_error(run, epoch)
    alone_s = stale_after_s * _CUT_OFF_PART if read_store_address(store.path) else None

    def connect() -> Connection:
        with explain_store_errors(store.path):
            return store.connect(patience_s=_PATIENCE_S)

    return Lease(connect, run, me, epoch, min(stale_after_s / 6, _HEARTBEAT_S), on_lost, alone_s, on_stop)


async def acquire_stoppable_lease(store: Store, run: str, stale_after_s: float, stop: Stop) -> Lease:
    """`acquire_lease` for a drive that `stop` ends, also while it waits; who loses the run or is asked to stop, stops.

    Raises `StoppedError`.
    """
    loop = asyncio.get_running_loop()

    def lost() -> None:  # called from the heartbeat thread
        loop.call_soon_threadsafe(stop, "lost")

    def stopped() -> None:
        loop.call_soon_threadsafe(stop)
        schedule_exit_if_blocked(run)

    work = acquire_lease(store, run, stale_after_s=stale_after_s, on_lost=lost, on_stop=stopped)
    return await await_unless_stopped(work, run, stop)


async def _wait_for_or_kill_silent_owner(
    conn: Connection, store: Store, run: str, owner_row: LeaseRow, stale_after_s: float
) -> LeaseRow | None:
    """Watch a living owner until it may be replaced. Reads only: it may hold the write lock."""
    pause = min(stale_after_s / 20, 0.25)
    silent = blocked = 0.0
    last = time.monotonic()
    while silent < stale_after_s:
        await asyncio.sleep(pause)
        now = time.monotonic()
        # If this process was suspended itself, the owner may not have had its turn yet.
        passed, last = min(now - last, 2 * pause), now
        row = read_lease(conn, run)
        if row is None or not row.held or is_alive(row.owner) is False:
            return row
        if row != owner_row:
            raise _busy_error(run, row)
        if (writer := store.database.find_writing_process()) in (None, owner_row.owner.pid):
            silent += passed
        elif (blocked := blocked + passed) >= stale_after_s:
            raise BusyError(
                f"The store {str(store.path)!r} is held by process {writer}, so nobody can drive {run!r}. "
                f"Wait for it, or end it with: kill {writer}"
            )
    # This very process may be the owner, through a lease it failed to release.
    if is_alive(owner_row.owner) and owner_row.owner.pid != os.getpid():
        await kill_process_and_wait(owner_row.owner)
    return owner_row


def _busy_error(run: str, row: LeaseRow) -> BusyError:
    pid, host = row.owner.pid, row.owner.host
    how = "there." if is_alive(row.owner) is None else f"with: kill {pid}"
    return BusyError(f"Run {run!r} is driven by process {pid} on {host}. Wait for it, or end it {how}")
