"""owner: names a process so that no other is taken for it: host, boot, pid, start time (`engine.md` 17)."""

import os
import subprocess
from pathlib import Path
from typing import NamedTuple


class Owner(NamedTuple):
    """A process, for all time."""

    host: str
    boot: str
    """Id of the host's boot; empty where the system has none."""
    pid: int
    started: str
    """The process's start time as the system counts it; empty: there is no such process."""


def this_host() -> str:
    return os.uname().nodename


def this_boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def started_at(pid: int) -> str:
    """Start time of a living process; empty when there is none, or only its unreaped remains."""
    if not Path("/proc/self/stat").exists():
        shown = subprocess.run(
            ["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
        )
        return shown.stdout.strip()
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    fields = stat.rpartition(")")[2].split()  # the name before it may hold anything
    return "" if fields[0] in "ZX" else fields[19]


def this_process() -> Owner:
    return Owner(this_host(), this_boot(), os.getpid(), started_at(os.getpid()))


def is_alive(owner: Owner) -> bool | None:
    """Whether the owner lives; None when it can't be known from here: another host."""
    if owner.host != this_host():
        return None
    if owner.boot != this_boot():
        return False
    return started_at(owner.pid) == owner.started != ""
