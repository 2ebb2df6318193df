"""identity: which process is meant, across reused pids and reboots, and whether it lives."""

import os
import signal
import sys
import time
from pathlib import Path
from typing import NamedTuple

from interlock.state.errors import BusyError

_INITIAL_PID_NAMESPACE = "pid:[4026531836]"
"""PROC_PID_INIT_INO of Linux's include/linux/proc_ns.h: the namespace outside any container."""


class ProcessIdentity(NamedTuple):
    """A process, identified across pid reuse and reboots."""

    host: str
    boot: str
    """The host's boot id; empty if the system has none."""
    pid: int
    started: str
    """The process's start time as the system reports it; empty: no such process."""


def host_and_pid_namespace() -> str:
    """Return the host's name; in a container with its pid namespace, because a pid means nothing outside it."""
    name = os.uname().nodename
    try:
        namespace = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return name
    return name if namespace == _INITIAL_PID_NAMESPACE else f"{name}/{namespace}"


def boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def process_start_time(pid: int) -> str:
    """Start time of a living process; empty if there is none, or only a zombie."""
    if not Path("/proc/self/stat").exists():
        return _process_start_time_from_ps(pid)
    process = Path(f"/proc/{pid}")
    try:
        stat = (process / "stat").read_text(encoding="utf-8", errors="replace")
        fields = stat.rpartition(")")[2].split()  # the process name before it can contain anything
        # A killed process's first thread can be a zombie while another still finishes a system call.
        remains = fields[0] in "ZX" and len(os.listdir(process / "task")) <= 1  # noqa: PTH208 (half the cost)
    except OSError:
        return ""
    return "" if remains else fields[19]


def _process_start_time_from_ps(pid: int) -> str:
    import subprocess  # deferred: lists check who is alive, and need it only without /proc

    env = {"PATH": "/bin:/usr/bin", "LC_ALL": "C", "TZ": "UTC"}
    command = ["ps", "-o", "stat=,lstart=", "-p", str(pid)]
    shown = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    status, _, started = shown.stdout.strip().partition(" ")
    return "" if status.startswith("Z") else started.strip()


def current_process_identity() -> ProcessIdentity:
    return ProcessIdentity(host_and_pid_namespace(), boot_id(), os.getpid(), process_start_time(os.getpid()))


def is_alive(owner: ProcessIdentity) -> bool | None:
    """Return whether the owner lives, even if suspended; None: unknown, because it is on another host."""
    if owner.host != host_and_pid_namespace():
        return None
    if owner.boot != boot_id():
        return False
    return process_start_time(owner.pid) == owner.started != ""


_KILLED_S = 10.0
"""Seconds within which a killed process must be gone."""


async def kill_process_and_wait(owner: ProcessIdentity) -> None:
    """SIGKILL a process of this host and wait until it is gone. Raises `BusyError` if it stays."""
    import asyncio  # deferred: it costs the fast commands 20 ms

    try:
        _send_sigkill(owner)
    except PermissionError as error:
        raise BusyError(
            f"Process {owner.pid} of another user doesn't answer and blocks this run. "
            f"Have it stopped, then try again: kill -9 {owner.pid}"
        ) from error
    deadline = time.monotonic() + _KILLED_S
    while is_alive(owner):
        if time.monotonic() > deadline:
            raise BusyError(
                f"Process {owner.pid} was killed but doesn't end (it waits for a device). "
                "Try again when it has exited."
            )
        await asyncio.sleep(0.005)


def _send_sigkill(owner: ProcessIdentity) -> None:
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
