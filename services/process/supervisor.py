"""supervisor: runs commands and ends all their descendants, at the latest when the run that started them is gone.

`main` runs once, in a process of its own; it forks a supervisor, in a session of its own, for each request that
comes through the socket DOOR: a byte with seven descriptors or more. These are a file, LIFELINE, STATUS, the command's
streams and its folder, then others that the command inherits as GIVEN, GIVEN + 1, and so on. The file has NUL-separated
fields: mode, grace period in seconds, limits on processes and on bytes of memory (exceeding either ends all; 0: no
limit), GIVEN, the number of variables, these, the command's words. LIFELINE is the
read end of a pipe whose write end only the run has: a byte means stop (SIGTERM to the command's group, SIGKILL to
all after the grace period), end-of-file means SIGKILL to all at once. STATUS receives `session N`, `pid N`, then
`exit N`, `signal N` or `error TEXT`, after `limit TEXT` if that is why, and after `left NAMES` if the command leaves
programs running that end now. After mode `once` nothing outlives the command;
after `background` its descendants live until the lifeline closes. `-sandboxed`: the command is bubblewrap, and the one
that was asked for runs below it.

Against fork bombs: for ordinary users the kernel stops forking not far above the limit; root isn't limited, so there
the supervisor gets priority over all of the command's processes. Where it can't have that, a bomb may be faster
(`bound_note`). Whole process groups are killed at once, so that no member can fork in between.

A supervisor is two processes, so that a SIGKILL of either leaves nothing behind: the guard inherits the worker's
children. The process that forks them reads no request, so it knows no variable of any command.
"""

import ctypes
import errno
import gc
import os
import resource
import select
import signal
import socket
import sys
import time
from contextlib import suppress

LINUX = sys.platform.startswith("linux") and os.access("/proc/self/stat", os.F_OK)
_C = ctypes.CDLL(None, use_errno=True)
_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
_KEYCTL = {"x86_64": 250, "aarch64": 219, "riscv64": 219, "loongarch64": 219, "ppc64le": 271, "s390x": 280}
"""Machine → number of the system call."""
_JOIN_SESSION_KEYRING = 1  # linux/keyctl.h
_RESCAN_S = 0.005
_GIVE_UP_S = 5.0  # then SIGKILL's survivors (a hung disk, another user's process) are left to init
_GONE = (ProcessLookupError, PermissionError)
_LOOK_S = 0.1
"""Interval for checking resource use: each check reads a few files per process."""
_SHELLS = ("bash", "sh", "dash", "zsh")
"""They run what was put in the background, and so aren't named beside it."""
_MOST_NAMED = 3
_PAGE = os.sysconf("SC_PAGE_SIZE")
_ROOM, _THREADS = 2, 2000
"""The kernel counts all the user's threads: it allows _ROOM × PROCESSES + _THREADS more than run on the machine."""


def describe_possible_process_escapes() -> str | None:
    """Describe what can outlive a killed run on this system, or None. For `doctor`."""
    if LINUX:
        return None
    return f"{sys.platform} has no child-subreaper: a command that leaves its process group outlives a killed run"


def _become_subreaper() -> bool:
    return LINUX and _C.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0


def _replace_keyring() -> None:
    """Take a new keyring, without keys: a sandbox would inherit the session's, with tickets and passphrases.

    Raises `OSError`, unless the system has no keyrings.
    """
    number = _KEYCTL.get(os.uname().machine) if LINUX else None
    if number is None or _C.syscall(number, _JOIN_SESSION_KEYRING, None) >= 0:
        return
    if (error := ctypes.get_errno()) not in (errno.ENOSYS, errno.EPERM):
        raise OSError(error, os.strerror(error))


def describe_process_limit() -> str:
    """Describe how the limit on a command's processes is enforced here. For `doctor`."""
    if not LINUX:
        return "commands have no limit on processes and memory"
    if os.geteuid():
        return "Interlock limits a command's processes; the kernel's own limit is a little higher"
    held = "only Interlock limits a command's processes: the kernel doesn't count root's"
    return held if _can_raise_priority() else f"{held}, and a fork bomb may be faster"


def _can_raise_priority() -> bool:
    before = os.sched_getscheduler(0), os.sched_getparam(0)
    held = _raise_priority()
    if held:
        os.sched_setscheduler(0, *before)
    return held


def _raise_priority() -> bool:
    """Run ahead of every process that isn't real-time. Processes started from here later would inherit this."""
    with suppress(OSError):  # not root, or not permitted
        if LINUX:
            os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
            return True
    return False


def _limit_forks(processes: int) -> None:
    """Have the kernel refuse forks that outpace our checks."""
    if not processes or not LINUX:
        return
    try:
        most = _count_system_threads() + processes * _ROOM + _THREADS
    except (OSError, ValueError, IndexError):  # a container may hide it
        return
    limits = resource.getrlimit(resource.RLIMIT_NPROC)
    soft, hard = (most if had == resource.RLIM_INFINITY else min(had, most) for had in limits)
    resource.setrlimit(resource.RLIMIT_NPROC, (soft, hard))


def _count_system_threads() -> int:
    """Count everyone's threads: the user's own are in each process's files, which takes milliseconds a command."""
    return int(_read_file("/proc/loadavg").split()[3].rpartition(b"/")[2])


def _read_file(path: str | int) -> bytes:
    with open(path, "rb") as file:  # noqa: PTH123 (pathlib, and all that it imports, would double this program's start)
        return file.read()


def _map_descendants_to_process_groups(ancestor: int) -> dict[int, int]:
    """Map descendants to their process groups, parents first."""
    children: dict[int, list[int]] = {}
    groups: dict[int, int] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdigit():
            with suppress(OSError, ValueError):  # it has ended in the meantime
                parent, group = map(int, _read_file(f"/proc/{name}/stat").rpartition(b")")[2].split()[1:3])
                children.setdefault(parent, []).append(int(name))
                groups[int(name)] = group
    found = list(children.get(ancestor, ()))
    for pid in found:
        found += children.get(pid, ())
    return {pid: groups[pid] for pid in found}


def _list_children(pid: int) -> list[int]:
    found: list[int] = []
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208
            found += map(int, _read_file(f"/proc/{pid}/task/{thread}/children").split())
    return found


def _proportional_memory_bytes(pid: int) -> int:
    """Return memory in bytes; shared memory is split among its users. 0 if unreadable."""
    with suppress(OSError, ValueError):
        for line in _read_file(f"/proc/{pid}/smaps_rollup").splitlines():
            if line.startswith(b"Pss:"):
                return int(line.split()[1]) * 1024
    return 0


def _resident_memory_bytes(pid: int) -> int:
    with suppress(OSError, ValueError, IndexError):
        return int(_read_file(f"/proc/{pid}/statm").split()[1]) * _PAGE
    return 0


def _describe_exceeded_limit(max_processes: int, max_memory: int) -> str:
    """Return the limit that this process's descendants exceed, or an empty string."""
    found = _list_children(os.getpid())
    for pid in found:
        found += _list_children(pid)
        if max_processes and len(found) > max_processes:
            return f"more than {max_processes:,} processes"
    if (
        max_memory
        and sum(map(_resident_memory_bytes, found)) > max_memory
        and sum(map(_proportional_memory_bytes, found)) > max_memory
    ):
        return f"more than {max_memory >> 20:,} MB of memory"
    return ""


def _spawn_command(command: list[bytes], variables: dict[bytes, bytes], inherited: dict[int, int]) -> int:
    """Start the command in its own process group, with descriptors that it inherits under other numbers.

    Raises `OSError` like exec.
    """
    ignored = (signal.SIGPIPE, signal.SIGXFSZ)  # ignored by Python, and exec would inherit that
    if path := variables.get(b"PATH"):
        os.environb[b"PATH"] = path  # where it is looked for
    moved = [(os.POSIX_SPAWN_DUP2, own, number) for own, number in inherited.items()]
    try:
        return os.posix_spawnp(
            command[0],
            command,
            variables,
            file_actions=moved,
            setpgroup=0,
            setsigmask=(),
            setsigdef=ignored,
        )
    finally:
        for descriptor in inherited:
            os.close(descriptor)


def _redirect_streams_to_null() -> None:
    """Release the streams: the command's output must end when its processes do."""
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    os.close(null)


class Reaper:
    """Collects ended children, and can end all that are left."""

    def __init__(self, pid: int, contained: bool, sandboxed: bool = False) -> None:
        self._pid, self._contained, self._sandboxed = pid, contained, sandboxed
        self.ended: int | None = None
        """Wait status of `pid`."""
        self.empty = False
        """No child is left; for a subreaper: no descendant."""

    def reap_ended_children(self) -> None:
        """Collect everything that has ended, without waiting."""
        try:
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == self._pid:
                    self.ended = ended[1]
        except ChildProcessError:
            self.empty = True

    def find_names_left_running(self) -> str:
        """Return the names of the programs that run on though the command has ended, a few of them."""
        if (
            self.empty or self._sandboxed or not self._contained
        ):  # a sandbox ends its own, and only it is seen
            return ""
        names: dict[str, None] = {}
        for pid in _map_descendants_to_process_groups(os.getpid()):
            with suppress(OSError, IndexError):
                stat = _read_file(f"/proc/{pid}/stat")
                if stat.rpartition(b")")[2].split()[0] != b"Z":
                    name = stat.partition(b"(")[2].rpartition(b")")[0].decode(errors="replace")
                    names["".join(c if c.isprintable() else "?" for c in name)] = None
        shells = [name for name in names if name in _SHELLS]
        listed = [name for name in names if name not in _SHELLS] or shells
        return ", ".join(listed[:_MOST_NAMED]) + (", …" if len(listed) > _MOST_NAMED else "")

    def kill_all_children(self) -> None:
        """Send SIGKILL repeatedly until none is left."""
        give_up = time.monotonic() + _GIVE_UP_S
        self.reap_ended_children()
        while not self.empty and time.monotonic() < give_up:
            self._kill_descendants()
            time.sleep(_RESCAN_S)
            self.reap_ended_children()
        if not self._contained:
            self.signal_command_group(signal.SIGKILL)

    def _kill_descendants(self) -> None:
        if self.ended is None:
            with suppress(*_GONE):  # at once: the search reads all of /proc
                os.killpg(self._pid, signal.SIGKILL)
        seen = _map_descendants_to_process_groups(os.getpid()) if self._contained else {}
        groups = {*seen.values()} - {os.getpgrp()}
        for pid in (*(-group for group in groups), *seen):
            with suppress(*_GONE):
                os.kill(pid, signal.SIGKILL)

    def signal_command_group(self, *signals: int) -> None:
        if (
            self.ended is not None
            and self._contained
            and self._pid not in _map_descendants_to_process_groups(os.getpid()).values()
        ):
            return  # nobody is left in it, and its number may be a stranger's by now
        for number in signals:
            with suppress(*_GONE):
                os.killpg(self._command_process_group(), number)

    def _command_process_group(self) -> int:
        """Return the command's group; in a sandbox it includes the sandbox's first process, which ignores SIGTERM."""
        below = _map_descendants_to_process_groups(self._pid) if self._sandboxed else {}
        return next(iter(below.values()), self._pid)


class Worker:
    """Starts the command and waits for its end, a stop, or the end of the run."""

    def __init__(
        self, lifeline: int, status: int, mode: str, grace_s: float, most: tuple[int, int], contained: bool
    ) -> None:
        self._most = most if contained else (0, 0)
        self._lifeline, self._status, self._grace_s, self._contained = lifeline, status, grace_s, contained
        self._keep, self._sandboxed = "background" in mode, "sandboxed" in mode
        self._kill_at: float | None = None
        self._wake, wake_write = os.pipe()
        for descriptor in (self._wake, wake_write):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)  # without a handler it would not wake us
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._request_kill)

    def run_command(
        self, command: list[bytes], variables: dict[bytes, bytes], inherited: dict[int, int]
    ) -> None:
        if self._lifeline in select.select([self._lifeline], [], [], 0)[0]:
            return  # the run was killed or changed its mind while this process was starting
        _limit_forks(self._most[0])
        try:
            if self._sandboxed:
                _replace_keyring()
            pid = _spawn_command(command, variables, inherited)
        except OSError as error:
            self._send_status(f"error {error.strerror}: {os.fsdecode(command[0])!r}")
            return
        _raise_priority()
        self._send_status(f"pid {pid}")
        _redirect_streams_to_null()
        self._wait_and_report_end(Reaper(pid, self._contained, self._sandboxed))

    def _wait_and_report_end(self, reaper: Reaper) -> None:
        reported = over = False
        while not over:
            reaper.reap_ended_children()
            over = self._is_finished(reaper)
            if over:
                if self._kill_at is None and not self._keep and (names := reaper.find_names_left_running()):
                    self._send_status(f"left {names}")
                reaper.kill_all_children()
            if reaper.ended is not None and not reported:
                code = os.waitstatus_to_exitcode(reaper.ended)
                self._send_status(f"exit {code}" if code >= 0 else f"signal {-code}")
                reported = True
            if not over:
                self._wait_and_handle_event(reaper)

    def _is_finished(self, reaper: Reaper) -> bool:
        if self._kill_at is not None:
            return reaper.ended is not None or time.monotonic() >= self._kill_at
        if self._keep:  # without a subreaper only the lifeline tells when the group is no longer needed
            return reaper.empty and self._contained
        return reaper.ended is not None

    def _wait_and_handle_event(self, reaper: Reaper) -> None:
        left = _LOOK_S if any(self._most) else None
        if self._kill_at is not None:
            left = max(0.0, self._kill_at - time.monotonic())
        elif excess := _describe_exceeded_limit(*self._most):
            self._send_status(f"limit {excess}")
            self._request_kill()
            return
        ready = select.select([self._lifeline, self._wake], [], [], left)[0]
        if self._wake in ready:
            os.read(self._wake, 4096)
        if self._lifeline in ready:
            if not os.read(self._lifeline, 64):
                self._request_kill()
            elif self._kill_at is None:
                self._kill_at = time.monotonic() + self._grace_s
                reaper.signal_command_group(signal.SIGTERM, signal.SIGCONT)

    def _request_kill(self, *_: object) -> None:
        self._kill_at = 0.0

    def _send_status(self, line: str) -> None:
        with suppress(BrokenPipeError):  # the run is gone: the lifeline reports it next
            os.write(self._status, f"{line}\n".encode(errors="replace"))


def _supervise_command(request: int, lifeline: int, status: int, *descriptors: int) -> None:
    """Run one command; returns in the guard and in the worker when all is over."""
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.write(status, f"session {os.getpid()}\n".encode())
    *streams, folder = descriptors[:4]
    given = descriptors[4:]
    for descriptor in (lifeline, status, *given):
        os.set_inheritable(descriptor, False)
    for stream, descriptor in enumerate(streams):
        os.dup2(descriptor, stream)
    os.fchdir(folder)
    for descriptor in descriptors[:4]:
        os.close(descriptor)
    mode, grace_s, processes, memory, first, count, *rest = _read_file(request).split(b"\0")
    contained = _become_subreaper()
    if (pid := os.fork()) == 0:
        _become_subreaper()
        most = int(processes), int(memory)
        worker = Worker(lifeline, status, mode.decode(), float(grace_s), most, contained)
        pairs = (variable.partition(b"=") for variable in rest[: int(count)])
        numbered = {own: int(first) + number for number, own in enumerate(given)}
        worker.run_command(rest[int(count) :], {name: value for name, _, value in pairs}, numbered)
        return
    for descriptor in given:
        os.close(descriptor)
    _raise_priority()
    _redirect_streams_to_null()
    os.waitpid(pid, 0)
    Reaper(pid, contained).kill_all_children()


def main(socket_descriptor: str) -> None:
    """Fork a supervisor for each request, until the run is gone."""
    door = socket.socket(fileno=int(socket_descriptor))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the guards
    gc.disable()  # a collection touches, and so copies, the pages that a fork shares
    while True:
        asked, descriptors, _, _ = socket.recv_fds(door, 1, 9)
        if not asked:
            return
        try:
            forked = os.fork()
        except OSError as error:
            os.write(descriptors[2], f"error {error.strerror}\n".encode())
        else:
            if not forked:
                door.close()
                _supervise_command(*descriptors)
                os._exit(0)  # without Python's own clean-up, which takes longer than all of this
        for descriptor in descriptors:
            os.close(descriptor)
