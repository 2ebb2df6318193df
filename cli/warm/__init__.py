"""warm: runs a command line as a fork of the warm process (`process`), which has already imported everything.

The protocol: a client sends one byte with descriptors (a file in memory that holds its arguments, environment, folder
and umask, then its own open files), the fork answers with its pid and with `ready` or why it refuses, and, once the
client says `g`, with its wait status at each stop and at its end.

The warm process knows nothing of the user: only the fork reads what was handed over. Whatever a fork can't take over
must be equal, else the start is an ordinary one. Linux only. Start-up waits for what is imported here: `socket` and
`json` would take a third of it.
"""

import marshal
import os
import signal
import sys
import termios
import time
from _socket import AF_UNIX, SCM_RIGHTS, SOCK_STREAM, SOL_SOCKET, socket
from array import array
from collections.abc import Mapping
from contextlib import closing, suppress
from types import FrameType

HAND_OVER, STOP, READY, GO = b"h", b"s", b"ready", b"g"
WORD = 4
"""Bytes of a pid, and of a wait status."""
PATIENCE_S = 2.0
"""Seconds until an ordinary start, if the warm process doesn't answer."""
_SILENT = "it doesn't answer"
_IMPORTED_WITH = ("PYTHON", "LD_", "LC_", "LANGGRAPH_", "PYDANTIC_", "MALLOC_", "GLIBC_", "OPENSSL_", "GRPC_")
"""Prefixes of variables that count while Python starts and packages are imported."""
_OF_TERMINALS = frozenset(
    {signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP, signal.SIGHUP, signal.SIGWINCH, signal.SIGCONT}
)
"""Signals a terminal sends to everything in the foreground."""


def socket_path() -> str:
    """The socket's path: in `$XDG_RUNTIME_DIR`, else in the state directory."""
    if runtime := os.environ.get("XDG_RUNTIME_DIR"):
        return f"{runtime}/interlock/warm"
    state = f"{os.environ.get('XDG_STATE_HOME') or '~/.local/state'}/interlock"
    return os.path.expanduser(f"{os.environ.get('INTERLOCK_HOME') or state}/start/warm")  # noqa: PTH111


def variables_affecting_imports(env: Mapping[str, str]) -> dict[str, str]:
    """The variables that count while packages are imported; none is a secret."""
    counting = {name for name in env if name.startswith(_IMPORTED_WITH) and not name.endswith("_KEY")}
    return {name: env[name] for name in (*counting, "LANG", "LANGUAGE") if name in env}


def describe_interpreter() -> str:
    """This process's, and how it was started."""
    # Not `utf8_mode`: it is on where no locale is set, yet off in a process started from there, which inherits C.UTF-8.
    flags = f"{sys.flags.optimize} {sys.flags.dev_mode} {sys.getfilesystemencoding()} {sys.warnoptions}"
    return f"{sys.prefix} {sys.base_prefix} {sys.version} {flags}"


def cold_start_reason() -> str:
    """Why this process doesn't ask for a warm start; empty: it may."""
    if not sys.platform.startswith("linux"):
        return "only Linux has it"
    if os.environ.get("CI"):
        return "CI is set"
    if os.environ.get("SUDO_UID"):
        return "it runs under sudo"
    return "" if _inheritable_descriptors()[:3] == [0, 1, 2] else "stdin, stdout or stderr is closed"


def _inheritable_descriptors() -> list[int]:
    """The streams, and what else a program started by this one would get."""
    found: list[int] = []
    for number in map(int, os.listdir("/proc/self/fd")):  # noqa: PTH208
        with suppress(OSError):  # the listing's own
            found += [number] if os.get_inheritable(number) else []
    return sorted(found)


def connect_to_warm_process() -> socket | None:
    """A connection to this user's warm process; None: there is none."""
    conn = socket(AF_UNIX, SOCK_STREAM)
    conn.settimeout(PATIENCE_S)
    with suppress(OSError):
        opened = os.open(socket_path(), os.O_PATH)  # its path may be too long for a socket's name
        try:
            conn.connect(f"/proc/self/fd/{opened}")
        finally:
            os.close(opened)
        if peer_credentials(conn)[1] == os.geteuid():
            return conn
    conn.close()
    return None


def peer_credentials(conn: socket) -> tuple[int, int]:
    """The process and the user at the other end."""
    from _socket import SO_PEERCRED  # only Linux has it

    pid, user, _ = memoryview(conn.getsockopt(SOL_SOCKET, SO_PEERCRED, 12)).cast("i")
    return pid, user


def run_in_warm_fork() -> int | None:
    """Run this process's command line in a fork of the warm process; returns its exit code.

    None: nothing has happened, start as usual. A process that a signal ended ends this one with the same signal.
    """
    if cold_start_reason() or (conn := connect_to_warm_process()) is None:
        return None
    with closing(conn):
        pid, refused = request_fork(conn, sys.argv)
        return None if refused else _forward_signals_until_exit(conn, pid)


def request_fork(conn: socket, argv: list[str]) -> tuple[int, str]:
    """Hand everything over; returns the fork, which waits for `GO`, and why it refuses, or an empty string."""
    request, umask = os.memfd_create("start"), os.umask(0o077)
    os.umask(umask)
    try:
        numbers = _inheritable_descriptors()
        given = {"argv": argv, "env": {**os.environ}, "cwd": os.getcwd(), "umask": umask, "numbers": numbers}  # noqa: PTH109
        os.write(request, marshal.dumps({**given, "interpreter": describe_interpreter()}))
        conn.sendmsg([HAND_OVER], [(SOL_SOCKET, SCM_RIGHTS, array("i", [request, *numbers]))])
        # After a refusal the fork's end is told, too, maybe before this has looked.
        pid, answer = conn.recv(WORD), conn.recv(1_000).partition(b"\n")[0]
        why = "" if answer == READY else answer.decode() or _SILENT
        return int.from_bytes(pid, sys.byteorder), why
    except OSError:
        return 0, _SILENT
    finally:
        os.close(request)


def _forward_signals_until_exit(conn: socket, pid: int) -> int:
    """Hand signals on and wait for the end."""
    before = termios.tcgetattr(0) if os.isatty(0) else None
    conn.settimeout(None)

    def forward_signal(number: int, _: FrameType | None) -> None:
        with suppress(ProcessLookupError):  # it has just ended
            (os.killpg if number in _OF_TERMINALS else os.kill)(pid, number)

    for number in (*_OF_TERMINALS, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, forward_signal)
    with suppress(OSError):
        conn.sendall(GO)
    from interlock.services.secrets.hidden import clear_environ_and_hide_memory

    clear_environ_and_hide_memory()
    while os.WIFSTOPPED(status := _read_wait_status(conn)):
        _wait_until_stopped(pid)
        os.kill(os.getpid(), signal.SIGSTOP)  # the shell takes over; SIGCONT is handed on
    with suppress(OSError, termios.error):  # the terminal is gone
        if before and before != termios.tcgetattr(0) and os.tcgetpgrp(0) == os.getpgrp():
            termios.tcsetattr(0, termios.TCSADRAIN, before)
            os.write(0, b"\x1b[?25h")  # the cursor
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        signal.signal(-code, signal.SIG_DFL) if -code != signal.SIGKILL else None
        os.kill(os.getpid(), -code)
    return code


def _wait_until_stopped(pid: int) -> None:
    """A fork announces its stop before it stops: a SIGCONT that arrives in between would be lost to it."""
    with suppress(OSError):  # it has ended
        while True:
            with open(f"/proc/{pid}/stat", "rb") as stat:  # noqa: PTH123
                if stat.read().rpartition(b")")[2].split()[0] in b"TZX":
                    return
            time.sleep(0.001)


def _read_wait_status(conn: socket) -> int:
    """The fork's wait status; SIGKILL's if nobody is left to tell it."""
    with suppress(OSError):
        if status := conn.recv(WORD):
            return int.from_bytes(status, sys.byteorder)
    return signal.SIGKILL
