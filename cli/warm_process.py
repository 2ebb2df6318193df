"""warm_process: imports once what every run needs, then forks for each command line that is handed over.

It holds no key, setting, store, open file or thread: it imports as `forker.py` does. For each connection a keeper is
forked, which alone reads what was handed over, forks the command's process, hands signals on and reports its end. A
client that is gone takes its command with it, as does a keeper that is killed.
"""

import ctypes
import fcntl
import io
import json
import os
import select
import signal
import socket
import sys
import termios
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from interlock.cli import warm
from interlock.cli.forker import as_text, become, close_all_but, import_all
from interlock.cli.main import VERSION, main
from interlock.services.secrets.hidden import hide

_PR_SET_PDEATHSIG = 1  # linux/prctl.h

_LONGEST_S = 1e8
"""What `select` can wait."""
Stamps = dict[str, tuple[int, int]]


def _stamps() -> Stamps:
    """File of every imported module → when it was changed, in ns, and its bytes."""
    files = {getattr(module, "__file__", None) for module in [*sys.modules.values()]}
    return {file: found for file in files if file and (found := _stamp(file))}


def _stamp(file: str) -> tuple[int, int] | None:
    try:
        found = os.stat(file)  # noqa: PTH116 - hundreds of them at each start
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def serve(listening: socket.socket, unused_s: float) -> None:
    """Fork for each connection, until none came for `unused_s` seconds, SIGTERM, or a client that says stop."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the keepers
    stamps = _stamps()
    while select.select([listening], [], [], unused_s)[0]:
        conn, _ = listening.accept()
        with conn:
            if warm.peer_of(conn)[1] != os.geteuid():
                continue
            conn.settimeout(warm.PATIENCE_S)
            try:
                what, fds, _, _ = socket.recv_fds(conn, 1, 2 + warm.MOST_DESCRIPTORS)
            except OSError:
                continue
            if what == warm.STOP:
                return
            if what == warm.HAND_OVER and len(fds) > 2 and os.fork() == 0:
                _keep(conn, fds, stamps)
            for fd in fds:
                os.close(fd)


def _keep(conn: socket.socket, fds: list[int], stamps: Stamps) -> NoReturn:
    """Start the command once the client says go; hand its signals on; report its end."""
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        close_all_but({0, 1, 2, conn.fileno(), *fds})  # the lock and the socket are the warm process's alone
        hide()
        with open(fds[0], "rb", closefd=False) as file:
            file.seek(0)
            given: dict[str, Any] = json.load(file)
        if why := _refusal(warm.peer_of(conn)[0], given, stamps):
            conn.sendall(warm.COLD + why.encode())
            os._exit(0)
        conn.sendall(warm.READY)
        conn.settimeout(None)
        if conn.recv(1) != warm.GO:
            os._exit(0)  # it waited too long, or only asked
        told, telling = os.pipe()
        os.set_blocking(telling, False)
        signal.signal(signal.SIGCHLD, _noticed)
        signal.set_wakeup_fd(telling)
        keeper, client = os.getpid(), warm.peer_of(conn)[0]
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            conn.detach()
            close_all_but({0, 1, 2, *fds})
            _become(given, fds, keeper, client)
        for fd in fds:
            os.close(fd)
        _watch(conn, told, pid)
    except BaseException:
        traceback.print_exc()
    os._exit(1)


def _noticed(_: int, __: FrameType | None) -> None:
    """With a handler, the signal wakes `select`."""


def _refusal(pid: int, given: dict[str, Any], stamps: Stamps) -> str:
    try:
        theirs = {**given["installed"], **warm.held(pid)}
    except OSError:
        return "its rights can't be read"
    ours = {**warm.installed(VERSION), **warm.held(os.getpid())}
    if differing := [name for name in ours if ours[name] != theirs.get(name)]:
        return f"another {differing[0]}"
    if changed := [file for file, stamp in stamps.items() if _stamp(file) != stamp]:
        os.kill(os.getppid(), signal.SIGTERM)  # the next one imports what is there now
        return f"{Path(changed[0]).name} has changed"
    return ""


def _watch(conn: socket.socket, told: int, pid: int) -> NoReturn:
    gone = False
    while True:
        readable, _, _ = select.select([told, *([] if gone else [conn])], [], [])
        if conn in readable:
            numbers = b""
            with suppress(OSError):
                numbers = conn.recv(64)
            if gone := not numbers:
                os.kill(pid, signal.SIGKILL)
            for number in numbers:
                with suppress(ProcessLookupError):
                    (os.killpg if warm.to_group(number) else os.kill)(pid, number)
        if told in readable:
            os.read(told, 64)
            ended, status = os.waitpid(pid, os.WNOHANG | os.WUNTRACED)
            if ended and os.WIFSTOPPED(status):
                conn.sendall(warm.STATUS.pack(b"s", 0))
            elif ended:
                with suppress(OSError):
                    conn.sendall(warm.STATUS.pack(b"e", status))
                os._exit(0)


def _become(given: dict[str, Any], fds: list[int], keeper: int, client: int) -> NoReturn:
    """Be the process that the client would have been."""
    os.setpgid(0, 0)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != keeper:
        os._exit(1)  # it died before that
    os.fchdir(fds[1])
    above = max(given["numbers"]) + 1
    moved: list[int] = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, above) for fd in fds[2:]]
    for fd, number in zip(moved, given["numbers"], strict=True):
        os.dup2(fd, number)
    close_all_but({*given["numbers"]})
    os.umask(given["umask"])
    sys.argv = given["argv"]
    warm.forked()

    def started() -> int:
        if os.isatty(0):
            _heed_job_control(client)
        return main()

    os._exit(become(given["env"], started))


def _heed_job_control(client: int) -> None:
    """Stop where the kernel stops an ordinary start: when it takes the terminal from the background.

    It doesn't stop this process, which is of another session than the terminal.
    """

    def wait() -> None:
        while not _in_front(client):
            os.killpg(0, signal.SIGTTIN)  # the shell continues the client, and this

    def waits(taking: Callable[..., None]) -> Callable[..., None]:
        def taken(*given: Any) -> None:
            wait()
            taking(*given)

        return taken

    class Waits(io.FileIO):
        def readinto(self, buffer: Any, /) -> int | None:
            select.select([self], [], [])
            wait()
            return super().readinto(buffer)

    termios.tcsetattr, termios.tcflush = waits(termios.tcsetattr), waits(termios.tcflush)
    sys.stdin = sys.__stdin__ = as_text(Waits(0, closefd=False), sys.stdin)


def _in_front(pid: int) -> bool:
    """Whether a process is in the foreground of its terminal, or has none."""
    try:
        found = (
            Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        )
    except OSError:  # it is gone, and takes this process with it
        return True
    return found[5] in (found[2], "-1")


def _locked(door: Path) -> int | None:
    """The socket's folder, closed to others and locked until this process ends; None: another warm process has it."""
    door.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = os.open(door.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    found = os.fstat(folder)
    if found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise PermissionError(f"{door.parent} isn't this user's alone (chmod 700)")
    while True:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if door.exists():
                return None
            time.sleep(0.05)  # it still imports
        else:
            door.unlink(missing_ok=True)
            return folder


def _listening(door: Path, folder: int) -> socket.socket:
    """Nobody can connect before: starts don't wait for imports."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    made.bind(f"/proc/self/fd/{folder}/{door.name}")
    door.chmod(0o600)
    made.listen(64)
    return made


def run(door: Path, unused_s: float) -> None:
    """The process's main function; says `ready`, `there is one` or what is wrong, in a line on stdout, then no more."""

    def end(*_: object) -> NoReturn:
        with suppress(OSError):
            door.unlink()
        os._exit(0)

    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    listening = None
    try:
        if (folder := _locked(door)) is not None:
            import_all(extras=True)
            listening = _listening(door, folder)
        said = "ready" if listening else "there is one"
    except Exception as error:
        said = " ".join(str(error).split()) or type(error).__name__
    os.write(1, f"{said}\n".encode())
    if listening is None:
        os._exit(0)
    nothing = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(nothing, fd)
    os.close(nothing)
    signal.signal(signal.SIGTERM, end)
    serve(listening, unused_s)
    end()


if __name__ == "__main__":
    run(Path(sys.argv[1]), min(float(sys.argv[2]), _LONGEST_S))
