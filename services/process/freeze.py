"""freeze: stops the processes of a run's other commands while a sandbox is made, so that nothing moves."""

import os
import signal
import time
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from pathlib import Path

_WITHIN_S = 1.0
"""What forks faster, or hangs in the kernel, isn't waited for: the sandbox is compared with what was meant anyway."""
_LOOK_S = 0.001


@contextmanager
def freeze_commands(supervisors: Iterable[int]) -> Generator[None]:
    """Stop what runs below these supervisors (their sessions) for the length of the block. Blocks for milliseconds.

    Other processes are never touched: each is held by a descriptor, and its parent is looked at once more before it is
    stopped. What was stopped before stays so.
    """
    stopped: dict[int, int] = {}
    try:
        sessions, until = {*supervisors}, time.monotonic() + _WITHIN_S
        while sessions and _stop_running(sessions, stopped) and time.monotonic() < until:
            time.sleep(_LOOK_S)
        yield
    finally:
        for descriptor in stopped.values():
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(descriptor, signal.SIGCONT)
            os.close(descriptor)


def _stop_running(sessions: set[int], stopped: dict[int, int]) -> bool:
    """Stop what still runs; returns whether there was anything."""
    parents = _parents_by_pid(sessions)
    running = [pid for pid in parents if not _is_stopped(pid)]
    for pid in running:
        if pid in stopped:
            continue
        try:
            descriptor = os.pidfd_open(pid)
        except OSError:  # it has ended
            continue
        # Its number was free until now; from here on the descriptor means this process.
        if _read_stat(pid)[1:2] != [str(parents[pid])]:
            os.close(descriptor)
            continue
        stopped[pid] = descriptor
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(descriptor, signal.SIGSTOP)
    return bool(running)


def _parents_by_pid(sessions: set[int]) -> dict[int, int]:
    """Map the processes below supervisors to their parents: not the supervisors themselves, a guard and its worker."""
    parent_of: dict[int, int] = {}
    supervisors: set[int] = set()
    for name in os.listdir("/proc"):  # noqa: PTH208 - thousands
        if name.isdigit() and len(fields := _read_stat(int(name))) > 3:
            parent_of[int(name)] = int(fields[1])
            if int(fields[3]) in sessions and (int(name) in sessions or int(fields[1]) in sessions):
                supervisors.add(int(name))
    found: dict[int, int] = {}
    more = supervisors
    while more:
        more = {pid for pid, parent in parent_of.items() if parent in more} - supervisors - found.keys()
        found |= {pid: parent_of[pid] for pid in more}
    return found


def _is_stopped(pid: int) -> bool:
    """Return whether no thread of a process can run."""
    with suppress(OSError):
        states = [_read_stat(pid, thread)[:1] for thread in os.listdir(f"/proc/{pid}/task")]  # noqa: PTH208
        return all(state in (["T"], ["t"], ["Z"], ["X"], []) for state in states)
    return True


def _read_stat(pid: int, thread: str = "") -> list[str]:
    """Return a process's state, parent, group and session; nothing if it has ended."""
    try:
        path = Path(f"/proc/{pid}/task/{thread}/stat" if thread else f"/proc/{pid}/stat")
        return path.read_text(errors="replace").rpartition(")")[2].split()[:4]
    except OSError:
        return []
