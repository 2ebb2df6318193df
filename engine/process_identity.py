"""process_identity: names a process so that no later one is taken for it, also after a reboot (`engine.md` 17)."""

import os
from pathlib import Path
from typing import NamedTuple

_INITIAL_PID_NAMESPACE = "pid:[4026531836]"
"""PROC_PID_INIT_INO of Linux's include/linux/proc_ns.h: the namespace outside of any container."""


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
    import subprocess  # lists ask who is alive: they need it only where there is no /proc

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
