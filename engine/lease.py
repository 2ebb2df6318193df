"""lease: one driver a run. Its owner beats while it lives; only the dead lose it (`engine.md` 17)."""

import asyncio
import os
import sqlite3
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from interlock.engine.process_identity import Owner, is_alive, this_process
from interlock.engine.store import Store
from interlock.engine.takeover import end_process, writer_of
from interlock.services.sqlite import explained, transaction
from interlock.state.errors import BusyError, StoreError

STALE_AFTER_S = 30.0
"""Seconds without a heartbeat, by the challenger's monotonic clock, until a living owner is replaced.

C code that holds the interpreter for longer stops the heartbeats and so loses the run."""
_BEAT_S = 2.0
"""Longest time between heartbeats; also how long a challenger waits to learn that an owner is well."""
_BUSY_MS = 1000
"""Longest wait of a heartbeat for another writer, in milliseconds; `release` may wait as long."""
_COLUMNS = "host, boot, pid, started, epoch, beat, held"


class _Row(NamedTuple):
    owner: Owner
    epoch: int
    beat: int
    held: bool


class Lease:
    """The right to drive a run, shared by everything that writes for this drive."""

    def __init__(
        self,
        conn: sqlite3.Connection,
        run: str,
        owner: Owner,
        epoch: int,
        beat_s: float,
        lost: Callable[[], None],
    ) -> None:
        self.run = run
        self.owner = owner
        self.epoch = epoch
        self.lost = False
        """Another process took the run over (or it was removed)."""
        self.held = True
        """Neither lost nor released."""
        self._conn, self._beat_s, self._on_lost = conn, beat_s, lost
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._keep, name=f"heartbeat {run}", daemon=True)
        self._thread.start()

    def release(self) -> None:
        """Give the run back; later writes through fenced connections are refused."""
        self.held = False
        self._stop.set()
        self._thread.join()

    def _keep(self) -> None:
        """Beat until released or lost, on a connection that nothing else uses."""
        try:
            self._conn.execute(f"pragma busy_timeout = {_BUSY_MS}")
            while not self._stop.wait(self._beat_s):
                if not self._update("beat = beat + 1"):
                    self.lost, self.held = True, False
                    self._on_lost()
                    return
            self._update("held = 0")
        finally:
            self._conn.close()

    def _update(self, change: str) -> bool:
        """False: the row is no longer ours, or the store is gone from its path."""
        try:
            with transaction(self._conn):
                rows = self._conn.execute(
                    f"update lease set {change} where run = ? and epoch = ?", (self.run, self.epoch)
                )
                return rows.rowcount == 1
        except StoreError:
            return False
        except sqlite3.Error:
            # A busy store costs a beat, not the run; what lasts (a full disk) the driver meets at its next
            # write. Where `held` stays set, the end of this process or its silence frees the run as well.
            return True


async def acquire(
    store: Store,
    run: str,
    *,
    stale_after_s: float = STALE_AFTER_S,
    identity: Owner | None = None,
    wait: bool = True,
    on_lost: Callable[[], None] = lambda: None,
) -> Lease:
    """Become the driver of `run`, ending an owner that is silent for `stale_after_s`.

    Raises `BusyError` as soon as the owner shows a sign of life; with `wait=False` at once when it may live.
    `on_lost` is called from the heartbeat thread.
    """
    me = identity or this_process()
    with explained(store.path):
        conn = store.connect()
        try:
            seen = _read(conn, run)
            if seen is not None and seen.held and is_alive(seen.owner) is not False:
                if not wait:
                    raise _busy(run, seen)
                seen = await _outlive(conn, store, run, seen, stale_after_s)
            epoch = _take(conn, run, me, seen)
        except BaseException:
            conn.close()
            raise
    return Lease(conn, run, me, epoch, min(stale_after_s / 6, _BEAT_S), on_lost)


async def _outlive(
    conn: sqlite3.Connection, store: Store, run: str, seen: _Row, stale_after_s: float
) -> _Row | None:
    """Watch a living owner until it may be replaced. Reads only: it may hold the write lock."""
    pause = min(stale_after_s / 20, 0.25)
    silent = blocked = 0.0
    last = time.monotonic()
    while silent < stale_after_s:
        await asyncio.sleep(pause)
        now = time.monotonic()
        # Had this process been stopped itself, the owner may not have had its turn yet.
        passed, last = min(now - last, 2 * pause), now
        row = _read(conn, run)
        if row is None or not row.held or is_alive(row.owner) is False:
            return row
        if row != seen:
            raise _busy(run, row)
        if (writer := writer_of(store.path)) in (None, seen.owner.pid):
            silent += passed
        elif (blocked := blocked + passed) >= stale_after_s:
            raise BusyError(
                f"The store {str(store.path)!r} is held by process {writer}, so nobody can drive {run!r}. "
                f"Wait for it, or end it with: kill {writer}"
            )
    # This very process may hold it too, by a lease that it failed to release.
    if is_alive(seen.owner) and seen.owner.pid != os.getpid():
        await end_process(seen.owner)
    return seen


def _take(conn: sqlite3.Connection, run: str, me: Owner, seen: _Row | None) -> int:
    with transaction(conn):
        row = _read(conn, run)
        if row is not None and row.held and row != seen:
            raise _busy(run, row)
        epoch, beat = (row.epoch + 1, row.beat + 1) if row else (1, 1)
        conn.execute(
            f"insert or replace into lease (run, {_COLUMNS}) values (?, ?, ?, ?, ?, ?, ?, 1)",
            (run, *me, epoch, beat),
        )
    return epoch


def _read(conn: sqlite3.Connection, run: str) -> _Row | None:
    row = conn.execute(f"select {_COLUMNS} from lease where run = ?", (run,)).fetchone()
    return row and _Row(Owner(*row[:4]), row[4], row[5], bool(row[6]))


def _busy(run: str, row: _Row) -> BusyError:
    pid, host = row.owner.pid, row.owner.host
    if is_alive(row.owner) is None:
        return BusyError(f"Run {run!r} is driven by process {pid} on {host}. Wait for it, or end it there.")
    return BusyError(
        f"Run {run!r} is driven by process {pid} on {host}. Wait for it, or end it with: kill {pid}"
    )
