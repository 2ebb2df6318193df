"""warm_server: imports once what every run needs, then forks for each command line that is handed over.

It holds no key, setting, store, open file or thread: it forks as `forker` does, and only the fork reads what was
handed over. The fork tells the client of its stops and its end, and the kernel kills it once its client is gone.
"""

import fcntl
import io
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from interlock.cli import warm
from interlock.cli.terminal import FOREGROUND
from interlock.cli.warm.fork_server import (
    MOST,
    PROGRAM,
    ForkServer,
    close_descriptors_except,
    open_text_stream,
    preload_modules_by_rehearsal,
    run_rehearsal_prompt,
    write_word,
)

_RIGHTS = ("Uid", "Gid", "Groups", "NoNewPrivs", "Seccomp", "Cap", "Cpus_", "Mems_", "SigBlk", "SigIgn")
"""Beginnings of the lines in proc(5)'s `status` that differ where a process may do other things."""
_STOPPED = signal.SIGSTOP << 8 | 0x7F
"""The wait status of a stopped process."""


_QUIET_S = 0.3
"""Seconds without a start until a fork is prepared: that takes a core for 0.2 s, which the last start may need."""


class _WarmServer(ForkServer):
    """Forks for clients of this user, one ahead: to fork and to copy pages is a fifth of a start."""

    def __init__(self, path: Path, folder: int) -> None:
        """`folder`: that of the path, which may be too long for a socket's name."""
        super().__init__(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        self.door.bind(f"/proc/self/fd/{folder}/{path.name}")
        self.door.listen(64)
        self._path = path
        self._own_start = {
            "variables": warm.variables_affecting_imports(os.environ),
            "interpreter": warm.describe_interpreter(),
        }
        self._stamps = _modification_times_of_imported_files()
        self._next: tuple[int, socket.socket] | None = None
        """The fork that waits to become the next start, and its socket: it says `READY`, and gets descriptors."""
        self._due = True

    def wait_for_input(self, timeout_s: float | None) -> list[Any]:
        if self._due:
            if ready := super().wait_for_input(_QUIET_S):
                return ready
            self._due, self._next = False, self._prepare_next_fork()
        return super().wait_for_input(timeout_s)

    def _prepare_next_fork(self) -> tuple[int, socket.socket] | None:
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                if (pid := os.fork()) == 0:
                    ours.close()
                    self._rehearse_then_run_next_request(theirs)
            except OSError:  # the next start forks by itself
                return None
        return pid, ours

    def _rehearse_then_run_next_request(self, request_socket: socket.socket) -> NoReturn:
        """Become the next start; the warm process's end ends this one, too."""
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        close_descriptors_except({0, 1, 2, request_socket.fileno()})  # the folder's lock, too
        try:
            with request_socket:
                run_rehearsal_prompt()
                request_socket.send(warm.READY)
                _, fds, _, _ = socket.recv_fds(request_socket, 1, MOST)
        except (OSError, RuntimeError):
            os._exit(1)
        if not fds:
            os._exit(0)
        self.run_child(*fds)

    def make_fork(self, *descriptors: int) -> int:
        if self._next and select.select([self._next[1]], [], [], 0)[0]:
            (pid, door), self._next, self._due = self._next, None, True
            with door, suppress(OSError):  # it was killed
                socket.send_fds(door, [warm.HAND_OVER], descriptors)
                return pid
        return super().make_fork(*descriptors)

    def stop_server(self, *_: object) -> NoReturn:
        """End the warm process; what was started goes on."""
        self._path.unlink(missing_ok=True)
        os._exit(0)

    def handle_request(self) -> bool:
        conn, _ = self.door.accept()
        with conn:
            conn.settimeout(warm.PATIENCE_S)
            try:
                asked, fds, _, _ = socket.recv_fds(conn, 1, MOST)
            except OSError:
                return True
            if warm.peer_credentials(conn)[1] != os.geteuid():
                return True
            if asked == warm.HAND_OVER and fds:
                self.fork_and_report(conn.detach(), *fds)
            elif asked == warm.STOP:
                self.stop_server()
        return True

    def run_request_in_fork(self, request: Mapping[str, Any], status_pipe: int) -> int:
        """Run, in the fork, what the client would have run, once it says go."""
        conn = socket.socket(fileno=status_pipe)
        conn.setblocking(True)
        client = warm.peer_credentials(conn)[0]
        why = self._find_refusal_reason_and_stop_if_stale(client, request)
        conn.sendall((why.encode() or warm.READY) + b"\n")
        if why or conn.recv(1) != warm.GO:
            os._exit(0)  # it waited too long, or only asked
        for what, value in ((fcntl.F_SETOWN, os.getpid()), (fcntl.F_SETSIG, signal.SIGKILL)):
            fcntl.fcntl(conn, what, value)
        fcntl.fcntl(conn, fcntl.F_SETFL, os.O_ASYNC)  # from now on its end kills this process
        if select.select([conn], [], [], 0)[0]:
            os._exit(1)  # it came before that
        conn.detach()
        os.umask(request["umask"])
        sys.argv = request["argv"]
        _install_job_control_handlers(client, status_pipe)
        return import_module(PROGRAM).run_command_line(sys.argv[1:], own_process=True)

    def _find_refusal_reason_and_stop_if_stale(self, client_pid: int, request: Mapping[str, Any]) -> str:
        theirs = {
            "variables": warm.variables_affecting_imports(request["env"]),
            "interpreter": request["interpreter"],
        }
        theirs |= _uninheritable_process_attributes(client_pid)
        ours = {**self._own_start, **_uninheritable_process_attributes(os.getpid())}
        if differing := [name for name in ours if ours[name] != theirs[name]]:
            return f"another {differing[0]}"
        if changed := [file for file, stamp in self._stamps.items() if _modification_time(file) != stamp]:
            os.kill(os.getppid(), signal.SIGTERM)  # the next one imports what is there now
            return f"{Path(changed[0]).name} has changed"
        return ""


def _modification_times_of_imported_files() -> dict[str, int]:
    """Path → when it was changed, in ns: of imported files, and of folders where package managers change more."""
    files = {getattr(module, "__file__", None) or "" for module in [*sys.modules.values()]}
    managed = (sys.prefix, sys.base_prefix)
    return {
        path: _modification_time(path)
        for path in (*sys.path, *files)
        if path in sys.path or not path.startswith(managed)
    }


def _modification_time(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns  # noqa: PTH116 - hundreds of them at each start
    except OSError:
        return 0


def _uninheritable_process_attributes(pid: int) -> dict[str, str]:
    """What a process may do and a fork of another can't take over, as the kernel tells it, by its name for people.

    A process in a sandbox that reaches the socket would say anything to get out of there.
    """

    def text(name: str) -> str:
        try:
            return Path(f"/proc/{pid}/{name}").read_text(encoding="utf-8", errors="replace")
        except OSError as error:  # some kernels have no `attr`
            return type(error).__name__

    rights = [line for line in text("status").splitlines() if line.startswith(_RIGHTS)]
    turn = os.getpriority(os.PRIO_PROCESS, pid), os.sched_getscheduler(pid)
    spaces = [space.readlink().name for space in sorted(Path(f"/proc/{pid}/ns").iterdir())]
    root = Path(f"/proc/{pid}/root").stat()
    return {
        "rights and signals": repr([*rights, text("attr/current"), text("loginuid")]),
        "limits": text("limits"),
        "priority": repr([*turn, text("oom_score_adj")]),
        "cgroup": text("cgroup"),
        "namespace": repr([*spaces, root.st_dev, root.st_ino]),
    }


def _install_job_control_handlers(client_pid: int, status_pipe: int) -> None:
    """Stop with the client, and where an ordinary start stops: when it takes the terminal from the background.

    The kernel doesn't stop this process, which is of another session than the terminal.
    """

    def stop_with_client(*_: object) -> None:
        write_word(status_pipe, _STOPPED)
        os.killpg(0, signal.SIGSTOP)  # the shell continues the client, and this

    def wait_for_foreground() -> None:
        while not _is_in_foreground(client_pid):
            os.kill(os.getpid(), signal.SIGTTIN)
            time.sleep(0.05)  # the main thread stops

    class Waits(io.FileIO):
        def readinto(self, buffer: Any, /) -> int | None:
            select.select([self], [], [])
            wait_for_foreground()
            return super().readinto(buffer)

    for number in (signal.SIGTSTP, signal.SIGTTIN):
        signal.signal(number, stop_with_client)
    if os.isatty(0):
        FOREGROUND.wait = wait_for_foreground
        sys.stdin = sys.__stdin__ = open_text_stream(Waits(0, closefd=False), sys.stdin)


def _is_in_foreground(pid: int) -> bool:
    """Whether a process is in the foreground of its terminal, or has none."""
    fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    return fields[5] in (fields[2], b"-1")


def _create_and_lock_folder(folder: Path) -> int:
    """The folder, closed to others, and locked until this process ends. Raises `OSError`."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    made = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    found = os.fstat(made)
    if found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise PermissionError(f"{folder} is open to other users (chmod 700 it)")
    try:
        fcntl.flock(made, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise BlockingIOError("another one is starting") from None
    return made


def run_warm_process(socket_file: Path, idle_timeout_s: float) -> None:
    """The process's main function; says `ready`, or what is wrong, in a line on stdout, then no more."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background ignores it
    for number in (signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    try:
        folder = _create_and_lock_folder(socket_file.parent)
        socket_file.unlink(missing_ok=True)
        preload_modules_by_rehearsal(with_optional_packages=True)
        starts = _WarmServer(socket_file, folder)  # nobody can connect before: starts don't wait for imports
    except Exception as error:
        print(" ".join(str(error).split()) or type(error).__name__)
        return
    print("ready", flush=True)
    with open(os.devnull, "r+b", buffering=0) as nothing:  # noqa: PTH123
        for fd in (0, 1, 2):
            os.dup2(nothing.fileno(), fd)
    signal.signal(signal.SIGTERM, starts.stop_server)
    starts.serve(min(idle_timeout_s, 1e8))  # `select` can't wait longer
    starts.stop_server()


if __name__ == "__main__":
    run_warm_process(Path(sys.argv[1]), float(sys.argv[2]))
