"""takeover: ends a process that doesn't answer, and tells who holds the store (`engine.md` 17)."""

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

from interlock.engine.process_identity import Owner, is_alive
from interlock.state.errors import BusyError

_WAL_WRITE_LOCK = "120"
"""Byte of the `-shm` file that SQLite locks while it writes (WAL_WRITE_LOCK at UNIX_SHM_BASE)."""


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
