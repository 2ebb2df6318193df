"""lease: one driver per run. The owner sends heartbeats; only a dead or silent one loses the run (`engine.md` 17)."""

import asyncio
import os
import signal
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from interlock.engine.options import HEARTBEAT_STALE_S
from interlock.engine.store import Store
from interlock.engine.store.tables import TABLES
from interlock.services.sqlite import explained, transaction
from interlock.state.errors import BusyError, StoreError

_INITIAL_PID_NAMESPACE = "pid:[4026531836]"
"""PROC_PID_INIT_INO of Linux's include/linux/proc_ns.h: the namespace outside any container."""


class Owner(NamedTuple):
    """A process, identified across pid reuse and reboots."""

    host: str
    boot: str
    """The host's boot id; empty if the system has none."""
    pid: int
    started: str
    """The process's start time as the system reports it; empty: no such process."""


def this_host() -> str:
    """The host's name; in a container with its pid namespace, because a pid means nothing outside it."""
    name = os.uname().nodename
    try:
        namespace = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return name
    return name if namespace == _INITIAL_PID_NAMESPACE else f"{name}/{namespace}"


def this_boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def started_at(pid: int) -> str:
    """Start time of a living process; empty if there is none, or only a zombie."""
    if not Path("/proc/self/stat").exists():
        return _started_by_ps(pid)
    process = Path(f"/proc/{pid}")
    try:
        stat = (process / "stat").read_text(encoding="utf-8", errors="replace")
        fields = stat.rpartition(")")[2].split()  # the process name before it can contain anything
        # A killed process's first thread can be a zombie while another still finishes a system call.
        remains = fields[0] in "ZX" and len(os.listdir(process / "task")) <= 1  # noqa: PTH208 (half the cost)
    except OSError:
        return ""
    return "" if remains else fields[19]


def _started_by_ps(pid: int) -> str:
    import subprocess  # deferred: lists check who is alive, and need it only without /proc

    env = {"PATH": "/bin:/usr/bin", "LC_ALL": "C", "TZ": "UTC"}
    command = ["ps", "-o", "stat=,lstart=", "-p", str(pid)]
    shown = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    status, _, started = shown.stdout.strip().partition(" ")
    return "" if status.startswith("Z") else started.strip()


def this_process() -> Owner:
    return Owner(this_host(), this_boot(), os.getpid(), started_at(os.getpid()))


def is_alive(owner: Owner) -> bool | None:
    """Whether the owner lives, even if suspended; None: unknown, because it is on another host."""
    if owner.host != this_host():
        return None
    if owner.boot != this_boot():
        return False
    return started_at(owner.pid) == owner.started != ""


_BEAT_S = 2.0
"""Longest time between heartbeats; also how long a challenger waits to learn that an owner is well."""
_BUSY_MS = 1000
"""Longest a heartbeat waits for another writer, in milliseconds; `release` may wait as long."""
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
        """Another process took the run over, or it was removed."""
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
        """Send heartbeats until released or lost, on a connection that nothing else uses."""
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
            # A busy store costs a beat, not the run; a lasting error (a full disk) hits the driver at its next
            # write. If `held` stays set, this process's end or silence frees the run as well.
            return True


async def acquire(
    store: Store,
    run: str,
    *,
    stale_after_s: float = HEARTBEAT_STALE_S,
    identity: Owner | None = None,
    wait: bool = True,
    on_lost: Callable[[], None] = lambda: None,
) -> Lease:
    """Become the driver of `run`, ending an owner that is silent for `stale_after_s`.

    Raises `BusyError` as soon as the owner shows a sign of life; with `wait=False` at once if it may be alive.
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
        # If this process was suspended itself, the owner may not have had its turn yet.
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
    # This very process may be the owner, through a lease it failed to release.
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
    how = "there." if is_alive(row.owner) is None else f"with: kill {pid}"
    return BusyError(f"Run {run!r} is driven by process {pid} on {host}. Wait for it, or end it {how}")


_WAL_WRITE_LOCK = "120"
"""Byte of the `-shm` file that SQLite locks while it writes (WAL_WRITE_LOCK at UNIX_SHM_BASE)."""


_KILLED_S = 10.0
"""Seconds within which a killed process must be gone."""


async def end_process(owner: Owner) -> None:
    """SIGKILL a process of this host and wait until it is gone. Raises `BusyError` if it stays."""
    try:
        _kill(owner)
    except PermissionError as error:
        raise BusyError(
            f"Process {owner.pid} of another user doesn't answer and holds what is needed here. "
            f"Have it ended, then try again: kill -9 {owner.pid}"
        ) from error
    deadline = time.monotonic() + _KILLED_S
    while is_alive(owner):
        if time.monotonic() > deadline:
            raise BusyError(
                f"Process {owner.pid} was killed but doesn't end (it waits for a device). "
                "Try again when it is gone."
            )
        await asyncio.sleep(0.005)


def _kill(owner: Owner) -> None:
    """SIGKILL, where possible through a pid descriptor, so the pid can't be reused between check and signal."""
    if sys.platform == "linux":
        try:
            descriptor = os.pidfd_open(owner.pid)
        except ProcessLookupError:
            return
        try:
            if is_alive(owner):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        except ProcessLookupError:
            pass  # it ended by itself
        finally:
            os.close(descriptor)
    elif is_alive(owner):
        os.kill(owner.pid, signal.SIGKILL)


def writer_of(path: Path) -> int | None:
    """Pid of the process in a write transaction on this SQLite file (WAL); None: nobody, or unknown.

    Reads /proc/locks: asking with fcntl takes a descriptor, and closing that would drop SQLite's own locks.
    """
    try:
        inode = str(Path(f"{path}-shm").stat().st_ino)
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


_STALE = "stale lease"
_ROWS = {"insert": "new", "update": "old", "delete": "old"}


def fence(conn: sqlite3.Connection, lease: Lease) -> None:
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
def fenced(conn: sqlite3.Connection, lease: Lease) -> Generator[None]:
    """Turn a write refused by the fence into an error that names the process driving the run now."""
    try:
        yield
    except sqlite3.IntegrityError as error:
        if str(error) != _STALE:
            raise
        raise lost(conn, lease) from error


def lost(conn: sqlite3.Connection, lease: Lease) -> BusyError:
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
