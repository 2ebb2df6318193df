"""supervisor_client: starts a supervisor, tracks the status of its command, and stops, freezes or kills it."""

import asyncio
import atexit
import os
import secrets
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Literal

PROGRAM = "import sys; sys.path.append(sys.argv[1]); import supervisor; supervisor.main(sys.argv[2])"
"""A module is compiled once, a script at each start, which takes 4 of 26 ms."""
GRACE_S = 2.0
"""Seconds between SIGTERM and SIGKILL when a command is stopped."""
_REAP_S = 6.0
"""A supervisor gives up on processes that survive SIGKILL for 5 s."""
_RESCAN_S = 0.005
_MARK = "INTERLOCK_COMMAND"
"""Environment variable that identifies a command's orphans after its supervisors were killed."""
_LOADED = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
"""What Python itself may need to start; the process that forks gets no other variable."""
_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY
"""Opens a folder that may be entered but not listed, where the system can."""
GIVEN = 200
"""Beyond the descriptors that a supervisor has of its own."""
_LAST_SIGNAL = 31
"""Higher numbers are real-time signals."""
Mode = Literal["once", "background", "once-sandboxed", "background-sandboxed"]
"""`once`: nothing outlives the command; `sandboxed`: under bubblewrap, reporting and signalling the inner command."""


class SupervisorSpawner:
    """The process that all supervisors of this process are forked from: it is started by the first, or ahead of it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._door: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def ensure_started(self) -> socket.socket:
        """Start it if it doesn't run; takes about a millisecond. Raises `OSError`."""
        with self._lock:
            if self._door is None:
                door, theirs = socket.socketpair()
                program = [
                    sys.executable,
                    "-I",
                    "-S",
                    "-c",
                    PROGRAM,
                    str(Path(__file__).parent),
                    str(theirs.fileno()),
                ]
                with theirs:
                    self._process = subprocess.Popen(
                        program,
                        env={name: value for name, value in os.environ.items() if name in _LOADED},
                        cwd="/",
                        stdin=subprocess.DEVNULL,
                        start_new_session=True,
                        pass_fds=[theirs.fileno()],
                    )
                self._door = door
            return self._door

    def start_in_advance(self) -> None:
        """While a model thinks: the first command needn't wait for Python's start. What fails, that command reports."""
        with suppress(OSError):
            self.ensure_started()

    def fork_supervisor(self, *descriptors: int) -> None:
        """Hand a request on (`supervisor.py`). Raises `OSError`."""
        try:
            socket.send_fds(self.ensure_started(), [b"x"], descriptors)
        except (BrokenPipeError, ConnectionResetError):  # it was killed; supervisors live on
            self.stop()
            socket.send_fds(self.ensure_started(), [b"x"], descriptors)

    def stop(self) -> None:
        with self._lock:
            if self._door and self._process:
                self._door.close()
                self._door = None
                self._process.kill()
                self._process.wait()

    def forget_after_fork(self) -> None:
        """In a forked process: the parent's stays the parent's."""
        if self._door and self._process:
            self._door.close()
            self._process.returncode = 0  # not ours to wait for
        self.__init__()


SUPERVISORS = SupervisorSpawner()
atexit.register(SUPERVISORS.stop)
os.register_at_fork(after_in_child=SUPERVISORS.forget_after_fork)


class SupervisedCommand:
    """One command under its supervisor. `close` must be called; it kills whatever is left."""

    pid: int | None = None
    """The command's pid, once it has started."""
    exit_code: int | None = None
    signal: int | None = None
    error: str | None = None
    """Why the command could not be started."""
    limit: str | None = None
    """The limit it exceeded and was killed for."""
    left_running = ""
    """Names of the programs that the command left running when it ended."""
    over = False
    """The supervisor has exited, and all descendants with it."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        output: int,
        mode: Mode,
        stdin: bytes | int | None = None,
        errors: int | None = None,
        most: tuple[int, int] = (0, 0),
        given: Sequence[int] = (),
    ) -> None:
        """`output`, `errors`: descriptors that the caller closes; without `errors` stderr goes to `output`.

        `most`: limits on processes and bytes of memory, children included; 0: none. `given`: what else it
        inherits, as `GIVEN` and the numbers after it. Raises `OSError`, `ValueError`.
        """
        self.asked_at = time.monotonic()
        """A short command may have ended before this process gets its turn again."""
        self._received, self._sandboxed = b"", mode.endswith("sandboxed")
        self._mark = secrets.token_hex(8)
        self.session: int | None = None
        """That of its supervisor, and the supervisor's pid."""
        # bash believes `PWD`: behind a link, `cd ..` would lead elsewhere than for policy.
        own = {"PWD": str(cwd), _MARK: self._mark}
        variables = [f"{name}={value}" for name, value in {**env, **own}.items()]
        fields = [mode, *map(str, (GRACE_S, *most, GIVEN, len(variables))), *variables, *argv]
        if any("\0" in field for field in fields):
            raise ValueError("embedded null byte")
        with ExitStack() as stack:
            asked = _write_to_temporary_file(stack, b"\0".join(map(os.fsencode, fields)))
            if not isinstance(stdin, int):
                stdin = (
                    _open_file(stack, os.devnull, os.O_RDONLY)
                    if stdin is None
                    else _write_to_temporary_file(stack, stdin)
                )
            folder = _open_file(stack, cwd, _FOLDER)
            ours, theirs = _open_pipes()
            stack.callback(_close_descriptors, theirs)
            self._lifeline, self._status = ours
            try:
                errors = output if errors is None else errors
                SUPERVISORS.fork_supervisor(asked, *theirs, stdin, output, errors, folder, *given)
            except BaseException:
                _close_descriptors(ours)
                raise

    @property
    def has_ended(self) -> bool:
        """The command itself has ended; in the background, its descendants may live on."""
        return self.over or self.exit_code is not None or self.signal is not None

    def apply_pending_messages(self) -> None:
        """Read the supervisor's messages so far, without waiting."""
        with suppress(BlockingIOError):
            while not self.over:
                data = os.read(self._status, 4096)
                self.over = not data
                self._received += data
        *lines, self._received = self._received.split(b"\n")
        for line in lines:
            self._apply_message(*line.decode().split(" ", 1))

    @property
    def has_unknown_outcome(self) -> bool:
        """The supervisor was killed: how, or whether, the command ended is unknown."""
        return self.over and self.exit_code is None and self.signal is None and self.error is None

    async def wait_until_started(self) -> None:
        """Return when `pid` or `error` is known, or the supervisor has exited."""
        while not (self.over or self.pid or self.error):
            await wait_until_readable(self._status)
            self.apply_pending_messages()

    async def wait_until_finished(self) -> None:
        """Return when the supervisor has exited."""
        while not self.over:
            await wait_until_readable(self._status)
            self.apply_pending_messages()
        if self.has_unknown_outcome:
            await asyncio.to_thread(self._kill_orphans)

    def terminate(self) -> None:
        """SIGTERM to the command's group; SIGKILL to everything `GRACE_S` later."""
        with suppress(BrokenPipeError):  # it has ended in the meantime
            os.write(self._lifeline, b"T")

    def kill(self) -> None:
        """SIGKILL to everything, at once."""
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1

    def kill_and_close(self) -> None:
        """Kill what is left and wait for it: milliseconds, at worst `_REAP_S`."""
        self.kill()
        if self._status >= 0:
            give_up = time.monotonic() + _REAP_S
            heard = select.poll()
            heard.register(self._status, select.POLLIN)
            while not self.over and time.monotonic() < give_up:
                heard.poll(1000 * (give_up - time.monotonic()))
                self.apply_pending_messages()
            os.close(self._status)
            self._status, self.over = -1, True
        if self.has_unknown_outcome and self.pid is not None:
            self._kill_orphans()

    def _kill_orphans(self) -> None:
        """Kill what the supervisors would have killed."""
        give_up = time.monotonic() + _REAP_S
        while (found := find_orphaned_processes(self._mark, self.session)) and time.monotonic() < give_up:
            for pid in found:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(_RESCAN_S)

    def _apply_message(self, kind: str, value: str) -> None:
        match kind:
            case "session":
                self.session = int(value)
            case "pid":
                self.pid = int(value)
            case "exit" if self._sandboxed and 128 < int(value) <= 128 + _LAST_SIGNAL:
                self.signal = int(value) - 128  # bubblewrap reports signals as shells do
            case "exit":
                self.exit_code = int(value)
            case "signal":
                self.signal = int(value)
            case "limit":
                self.limit = value
            case "left":
                self.left_running = value
            case _:
                self.error = value


def find_orphaned_processes(mark: str, session: int | None) -> list[int]:
    """List live processes that carry the mark, are in the session (None: not known), or descend from one of these."""
    found: set[int] = set()
    parents: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError, IndexError):
            state, parent, _, its_session = (folder / "stat").read_bytes().rpartition(b")")[2].split()[:4]
            if state == b"Z":
                continue
            parents[pid := int(folder.name)] = int(parent)
            if int(its_session) == session or f"{_MARK}={mark}".encode() in (folder / "environ").read_bytes():
                found.add(pid)
    more = found
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return sorted(found)


def _open_pipes() -> tuple[tuple[int, int], tuple[int, int]]:
    """Return our ends (lifeline write, status read) and the supervisor's."""
    lifeline_read, lifeline = os.pipe()
    status, status_write = os.pipe()
    os.set_blocking(status, False)
    return (lifeline, status), (lifeline_read, status_write)


def _close_descriptors(descriptors: tuple[int, int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _open_file(stack: ExitStack, path: str | Path, flags: int) -> int:
    descriptor = os.open(path, flags)
    stack.callback(os.close, descriptor)
    return descriptor


def _write_to_temporary_file(stack: ExitStack, data: bytes) -> int:
    """Hold `data` in a file rather than a pipe, which would have to be fed while it is read."""
    file = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 (closed by the stack)
    file.write(data)
    file.seek(0)
    return file.fileno()


async def wait_until_readable(descriptor: int) -> None:
    """Return when data can be read, or the other end is closed."""
    loop = asyncio.get_running_loop()
    ready = loop.create_future()

    def mark_ready() -> None:
        if not ready.done():
            ready.set_result(None)

    loop.add_reader(descriptor, mark_ready)
    try:
        await ready
    finally:
        loop.remove_reader(descriptor)


# ---- other commands of the run, while a sandbox is made

_WITHIN_S = 1.0
"""What forks faster, or hangs in the kernel, isn't waited for: the sandbox is compared with what was meant anyway."""
_LOOK_S = 0.001


@contextmanager
def freeze_commands(supervisor_pids: Iterable[int]) -> Generator[None]:
    """Stop what runs below these supervisors (their sessions) for the length of the block. Blocks for milliseconds.

    Other processes are never touched: each is held by a descriptor, and its parent is looked at once more before it is
    stopped. What was stopped before stays so.
    """
    stopped: dict[int, int] = {}
    try:
        sessions, until = {*supervisor_pids}, time.monotonic() + _WITHIN_S
        while sessions and _freeze_running_processes(sessions, stopped) and time.monotonic() < until:
            time.sleep(_LOOK_S)
        yield
    finally:
        for descriptor in stopped.values():
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(descriptor, signal.SIGCONT)
            os.close(descriptor)


def _freeze_running_processes(sessions: set[int], stopped: dict[int, int]) -> bool:
    """Stop what still runs; returns whether there was anything."""
    parents = _map_supervised_pids_to_parents(sessions)
    running = [pid for pid in parents if not _is_frozen_or_dead(pid)]
    for pid in running:
        if pid in stopped:
            continue
        try:
            descriptor = os.pidfd_open(pid)
        except OSError:  # it has ended
            continue
        # Its number was free until now; from here on the descriptor means this process.
        if _read_proc_stat(pid)[1:2] != [str(parents[pid])]:
            os.close(descriptor)
            continue
        stopped[pid] = descriptor
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(descriptor, signal.SIGSTOP)
    return bool(running)


def _map_supervised_pids_to_parents(sessions: set[int]) -> dict[int, int]:
    """Map the processes below supervisors to their parents: not the supervisors themselves, a guard and its worker."""
    parent_of: dict[int, int] = {}
    supervisors: set[int] = set()
    for name in os.listdir("/proc"):  # noqa: PTH208 - thousands
        if name.isdigit() and len(fields := _read_proc_stat(int(name))) > 3:
            parent_of[int(name)] = int(fields[1])
            if int(fields[3]) in sessions and (int(name) in sessions or int(fields[1]) in sessions):
                supervisors.add(int(name))
    found: dict[int, int] = {}
    more = supervisors
    while more:
        more = {pid for pid, parent in parent_of.items() if parent in more} - supervisors - found.keys()
        found |= {pid: parent_of[pid] for pid in more}
    return found


def _is_frozen_or_dead(pid: int) -> bool:
    """Return whether no thread of a process can run."""
    with suppress(OSError):
        states = [_read_proc_stat(pid, thread)[:1] for thread in os.listdir(f"/proc/{pid}/task")]  # noqa: PTH208
        return all(state in (["T"], ["t"], ["Z"], ["X"], []) for state in states)
    return True


def _read_proc_stat(pid: int, thread: str = "") -> list[str]:
    """Return a process's state, parent, group and session; nothing if it has ended."""
    try:
        path = Path(f"/proc/{pid}/task/{thread}/stat" if thread else f"/proc/{pid}/stat")
        return path.read_text(errors="replace").rpartition(")")[2].split()[:4]
    except OSError:
        return []
