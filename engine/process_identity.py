"""process_identity: names a process so that no later one is taken for it, and ends it (`engine.md` 17)."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from interlock.state.errors import BusyError

_INITIAL_PID_NAMESPACE = "pid:[4026531836]"
"""PROC_PID_INIT_INO of Linux's include/linux/proc_ns.h: the namespace outside of any container."""
_WAL_WRITE_LOCK = "120"
"""Byte of the `-shm` file that SQLite locks while it writes (WAL_WRITE_LOCK at UNIX_SHM_BASE)."""


class Owner(NamedTuple):
    """A process, for all time."""

    host: str
    boot: str
    """Id of the host's boot; empty where the system has none."""
    pid: int
    started: str
    """The process's start time as the system counts it; empty: there is no such process."""


def this_host() -> str:
    """The host's name; in a container also its pid namespace, because a pid means nothing outside."""
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
    """Start time of a living process; empty when there is none, or only its unreaped remains."""
    if not Path("/proc/self/stat").exists():
        return _started_by_ps(pid)
    process = Path(f"/proc/{pid}")
    try:
        stat = (process / "stat").read_text(encoding="utf-8", errors="replace")
        fields = stat.rpartition(")")[2].split()  # the name before it may hold anything
        # A killed process's first thread can be a zombie while another still finishes a system call.
        remains = fields[0] in "ZX" and len(os.listdir(process / "task")) <= 1  # noqa: PTH208 (half the cost)
    except OSError:
        return ""
    return "" if remains else fields[19]


def _started_by_ps(pid: int) -> str:
    env = {"PATH": "/bin:/usr/bin", "LC_ALL": "C", "TZ": "UTC"}
    command = ["ps", "-o", "stat=,lstart=", "-p", str(pid)]
    shown = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    status, _, started = shown.stdout.strip().partition(" ")
    return "" if status.startswith("Z") else started.strip()


def this_process() -> Owner:
    return Owner(this_host(), this_boot(), os.getpid(), started_at(os.getpid()))


def is_alive(owner: Owner) -> bool | None:
    """Whether the owner lives, stopped or not; None when it can't be known from here: another host."""
    if owner.host != this_host():
        return None
    if owner.boot != this_boot():
        return False
    return started_at(owner.pid) == owner.started != ""


async def end_process(owner: Owner, timeout_s: float = 10.0) -> None:
    """SIGKILL a process of this host and wait until nothing of it runs. Raises `BusyError` when it stays."""
    try:
        _kill(owner)
    except PermissionError as error:
        raise BusyError(
            f"Process {owner.pid} of another user doesn't answer and holds what is needed here. "
            f"Have it ended, then try again: kill -9 {owner.pid}"
        ) from error
    deadline = time.monotonic() + timeout_s
    while is_alive(owner):
        if time.monotonic() > deadline:
            raise BusyError(
                f"Process {owner.pid} was killed but doesn't end (it waits for a device). "
                "Try again when it is gone."
            )
        await asyncio.sleep(0.005)


def _kill(owner: Owner) -> None:
    """The pid can't pass to another process between check and signal where the system has pid descriptors."""
    if sys.platform == "linux":
        try:
            descriptor = os.pidfd_open(owner.pid)
        except ProcessLookupError:
            return
        try:
            if is_alive(owner):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        except ProcessLookupError:
            pass  # ended by itself: that is what was wanted
        finally:
            os.close(descriptor)
    elif is_alive(owner):
        os.kill(owner.pid, signal.SIGKILL)


def writer_of(path: Path) -> int | None:
    """Pid of the process that is in a write transaction on this SQLite file (WAL); None: nobody, or unknown.

    From /proc/locks: to ask with fcntl takes a descriptor, and closing that would drop SQLite's own locks.
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
