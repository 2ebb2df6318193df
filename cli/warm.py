"""warm: hands a command line over to the warm process (`warm_process.py`), which has already imported everything.

The warm process knows nothing of the user: it gets one byte and descriptors, forks, and only the fork reads what was
handed over. Arguments, environment, folder, umask, streams and signals are those of this process; whatever a fork
can't take over must be equal (`installed`, `held`), else the start is an ordinary one. Linux only.
"""

import json
import os
import signal
import socket
import stat
import struct
import sys
import termios
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

from interlock.services.secrets.hidden import hide

HAND_OVER, STOP = b"h", b"s"
READY, COLD, GO = b"r", b"c", b"g"
STATUS = struct.Struct("=ci")
"""What the keeper reports: `e` (ended) and the exit status, or `s` (stopped) and 0."""
PATIENCE_S = 2.0
"""Seconds until an ordinary start, if the warm process doesn't answer."""
_STATUS_LINES = (
    *("Uid", "Gid", "Groups", "NoNewPrivs", "Seccomp", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"),
    *("Cpus_allowed", "Mems_allowed", "SigBlk", "SigIgn"),
)
"""Lines of proc(5)'s `status` that differ where a process may do other things."""
_NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "time", "user", "uts")
_IMPORTED_WITH = ("PYTHON", "LD_", "LC_", "LANGGRAPH_", "PYDANTIC_", "MALLOC_", "GLIBC_", "OPENSSL_", "GRPC_")
"""Prefixes of variables that count while Python starts and packages are imported."""
_OF_TERMINALS = frozenset(
    {signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP, signal.SIGHUP, signal.SIGWINCH, signal.SIGCONT}
)
"""Signals a terminal sends to everything in the foreground."""
_HANDED_ON = (*_OF_TERMINALS, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
MOST_DESCRIPTORS = 200
"""Handed over; the kernel takes 253 at once."""
_forked = False


def door() -> Path:
    """The socket's path: in `$XDG_RUNTIME_DIR`, else in the state directory."""
    env = os.environ
    if runtime := env.get("XDG_RUNTIME_DIR"):
        return Path(runtime, "interlock", "warm")
    state = Path(
        env.get("XDG_STATE_HOME") or Path(env.get("HOME") or Path.home(), ".local", "state"), "interlock"
    )
    return Path(env.get("INTERLOCK_HOME") or state, "start", "warm").expanduser().absolute()


def forked() -> None:
    """Called in the process that was forked: it hands nothing over again."""
    global _forked
    _forked = True


def imported_with() -> dict[str, str]:
    """The variables that count while packages are imported; none is a secret."""
    return {
        k: v
        for k, v in sorted(os.environ.items())
        if k.startswith(_IMPORTED_WITH) or k in ("LANG", "LANGUAGE")
    }


def installed(version: str) -> dict[str, str]:
    """What this process has imported, and with what, by its name for people."""
    # Not `utf8_mode`: it is on where no locale is set, yet off in a process started from there, which inherits C.UTF-8.
    flags = f"{sys.flags.optimize} {sys.flags.dev_mode} {sys.getfilesystemencoding()} {sys.warnoptions}"
    return {
        "version": version,
        "variables": repr(imported_with()),
        "interpreter": f"{os.path.realpath(sys.executable)} {sys.prefix} {sys.version} {flags}",
    }


def held(pid: int) -> dict[str, str]:
    """What a process may do and a fork of another can't take over, as the kernel tells it, by its name for people.

    A process in a sandbox that reaches the socket would say anything to get out of there.
    """
    lines = dict(line.split(":\t", 1) for line in _text(pid, "status").splitlines() if ":\t" in line)
    rights = [lines.get(name) for name in _STATUS_LINES]
    turn = os.getpriority(os.PRIO_PROCESS, pid), os.sched_getscheduler(pid)
    spaces = [Path(f"/proc/{pid}/ns/{name}").readlink().name for name in _NAMESPACES]
    root = Path(f"/proc/{pid}/root").stat()
    return {
        "rights and signals": repr([*rights, _text(pid, "attr/current"), _text(pid, "loginuid")]),
        "limits": _text(pid, "limits"),
        "priority": repr([*turn, _text(pid, "oom_score_adj")]),
        "cgroup": _text(pid, "cgroup"),
        "namespace": repr([*spaces, root.st_dev, root.st_ino]),
    }


def _text(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_text(encoding="utf-8", errors="replace")
    except OSError as error:  # some kernels have no `attr`
        return type(error).__name__


def why_cold() -> str:
    """Why this process doesn't ask for a warm start; empty: it may."""
    if not sys.platform.startswith("linux"):
        return "only Linux has it"
    if os.environ.get("CI"):
        return "CI is set"
    if os.environ.get("SUDO_UID"):
        return "it is run by sudo"
    if (found := _descriptors())[:3] != [0, 1, 2]:
        return "stdin, stdout or stderr is closed"
    return "" if len(found) <= MOST_DESCRIPTORS else f"it was given {len(found)} descriptors"


def _descriptors() -> list[int]:
    """The streams, and what else a program started by this one would get."""
    found: list[int] = []
    for number in map(int, os.listdir("/proc/self/fd")):  # noqa: PTH208
        with suppress(OSError):  # the listing's own
            if os.get_inheritable(number):
                found.append(number)
    return sorted(found)


@contextmanager
def connected() -> Generator[socket.socket | None]:
    """A connection to this user's warm process; None: there is none, or its folder isn't closed to others."""
    path = door()
    try:
        folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        yield None
        return
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as conn:
            conn.settimeout(PATIENCE_S)
            yield (
                conn if _is_ours(folder) and _connects(conn, f"/proc/self/fd/{folder}/{path.name}") else None
            )
    finally:
        os.close(folder)


def _is_ours(folder: int) -> bool:
    found = os.fstat(folder)
    return found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) == 0o700


def _connects(conn: socket.socket, path: str) -> bool:
    try:
        conn.connect(path)  # by the folder's descriptor: the path itself may be too long for a socket's name
    except OSError:
        return False
    return peer_of(conn)[1] == os.geteuid()


def peer_of(conn: socket.socket) -> tuple[int, int]:
    """The process and the user at the other end."""
    pid, user, _ = struct.unpack("3i", conn.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return pid, user


def hand_over(version: str) -> int | None:
    """Run this process's command line in a fork of the warm process; returns its exit code.

    None: nothing has happened, start as usual. A process that a signal ended ends this one with the same signal.
    """
    if _forked or why_cold():
        return None
    with connected() as conn:
        if conn is None or asked(conn, version, sys.argv):
            return None
        return _kept(conn)


def asked(conn: socket.socket, version: str, argv: list[str]) -> str:
    """Hand everything over; returns why the warm process refuses, or an empty string: it waits for `GO`."""
    umask = os.umask(0)
    os.umask(umask)
    numbers = _descriptors()
    given = {"argv": argv, "env": {**os.environ}, "umask": umask, "numbers": numbers}
    given |= {"installed": installed(version)}
    request = os.memfd_create("start", os.MFD_CLOEXEC)
    try:
        here = os.open(".", os.O_PATH | os.O_DIRECTORY)
        try:
            os.write(request, json.dumps(given).encode())
            socket.send_fds(conn, [HAND_OVER], [request, here, *numbers])
        finally:
            os.close(here)
        answer = conn.recv(1)
        return "" if answer == READY else conn.recv(1_000).decode() or "it doesn't answer"
    except OSError:
        return "it doesn't answer"
    finally:
        os.close(request)


def _kept(conn: socket.socket) -> int:
    """Hand signals on and wait for the end."""
    before = _terminal()
    conn.settimeout(None)

    def pass_on(number: int, _: FrameType | None) -> None:
        with suppress(OSError):  # it has just ended
            conn.sendall(bytes([number]))

    caught = [n for n in _HANDED_ON if signal.getsignal(n) is not signal.SIG_IGN]
    for number in caught:
        signal.signal(number, pass_on)
    hide()
    with suppress(OSError):
        conn.sendall(GO)
    kind, status = _reported(conn)
    while kind == b"s":
        os.kill(os.getpid(), signal.SIGSTOP)  # the shell takes over; SIGCONT is handed on
        kind, status = _reported(conn)
    _restored(before)
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        signal.signal(-code, signal.SIG_DFL) if -code != signal.SIGKILL else None
        os.kill(os.getpid(), -code)
    return code


def _reported(conn: socket.socket) -> tuple[bytes, int]:
    """Raises nothing: a keeper that is gone took its child with it, as SIGKILL does."""
    found = b""
    with suppress(OSError):
        while len(found) < STATUS.size and (more := conn.recv(STATUS.size - len(found))):
            found += more
    return STATUS.unpack(found) if len(found) == STATUS.size else (b"e", int(signal.SIGKILL))


def _terminal() -> list[Any] | None:
    try:
        return termios.tcgetattr(0)
    except termios.error:
        return None


def _restored(before: list[Any] | None) -> None:
    """Bring the terminal back as it was, also after SIGKILL."""
    with suppress(termios.error, OSError):
        if before and before != _terminal() and os.tcgetpgrp(0) == os.getpgrp():
            termios.tcsetattr(0, termios.TCSADRAIN, before)
            os.write(0, b"\x1b[?25h")  # the cursor


def to_group(number: int) -> bool:
    """Whether a signal is one that a terminal sends to everything in its foreground."""
    return number in _OF_TERMINALS
