"""forker: the process behind `warm.py`: it imports once, then forks for each request."""

import fcntl
import gc
import io
import json
import os
import runpy
import signal
import socket
import sys
import tempfile
import termios
import threading
import time
import traceback
from pathlib import Path
from typing import Any, NoReturn

STATUS = 4
"""Bytes of a pid, and of a process's exit status."""
WARM_UP = [
    {
        "tool_calls": [
            {"name": "write_file", "args": {"file_path": "a.txt", "content": "one\n"}},
            {"name": "read_file", "args": {"file_path": "a.txt"}},
            {"name": "run_shell_command", "args": {"command": "cat a.txt"}},
        ]
    },
    {"text": "Done."},
]


def _serve(door: socket.socket) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the keepers
    while True:
        message, fds, _, _ = socket.recv_fds(door, 1, 5)
        if not message:
            return
        if os.fork() == 0:
            door.close()
            _keep(*fds)
        for fd in fds:
            os.close(fd)


def _keep(request: int, stdin: int, stdout: int, stderr: int, told: int) -> NoReturn:
    """Report its pid, wait for its end, and report that."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests run in the background
    pid = os.fork()
    if pid == 0:
        os.close(told)
        _become(request, (stdin, stdout, stderr))
    for fd in (request, stdin, stdout, stderr):
        os.close(fd)
    os.write(told, pid.to_bytes(STATUS, sys.byteorder))
    _, status = os.waitpid(pid, 0)
    os.write(told, status.to_bytes(STATUS, sys.byteorder))
    os._exit(0)


def _become(request: int, streams: tuple[int, int, int]) -> NoReturn:
    with open(request, "rb") as file:
        file.seek(0)
        given: dict[str, Any] = json.load(file)
    if given["terminal"]:
        os.setsid()
        fcntl.ioctl(streams[0], termios.TIOCSCTTY, 0)
    for number, fd in enumerate(streams):
        os.dup2(fd, number)
    for fd in {*streams} - {0, 1, 2}:
        os.close(fd)
    os.chdir(given["cwd"])
    os.environ.clear()
    os.environ.update(given["env"])
    time.tzset()
    sys.argv = [given["program"] or "interlock", *given["arguments"]]
    sys.stdin = sys.__stdin__ = _text(0, "r", "surrogateescape")
    sys.stdout = sys.__stdout__ = _text(1, "w", "strict", by_line=os.isatty(1))
    sys.stderr = sys.__stderr__ = _text(2, "w", "backslashreplace", by_line=True)
    try:
        code = _run(given["program"])
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    os._exit(code)


def _run(program: str) -> int:
    from interlock.cli.main import main

    if not program:
        return main()
    runpy.run_path(program, run_name="__main__")
    return 0


def _text(fd: int, mode: str, errors: str, by_line: bool = False) -> io.TextIOWrapper:
    """A stream as Python makes it at startup."""
    raw = io.FileIO(fd, mode, closefd=False)
    binary = io.BufferedReader(raw) if mode == "r" else io.BufferedWriter(raw)
    return io.TextIOWrapper(binary, "utf-8", errors, line_buffering=by_line)


def _warm_up() -> None:
    """Import what a run and a session need by running one; only the modules are kept."""
    from importlib import import_module
    from pkgutil import iter_modules

    from interlock.cli import quick_start, session
    from interlock.cli.main import main

    quick_start.own_process = True
    quick_start.begin()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        os.environ.update(HOME=folder, INTERLOCK_HOME=f"{folder}/state")
        Path("script.json").write_text(json.dumps(WARM_UP))
        with Path("told").open("w") as told:
            sys.stdout = sys.stderr = told
            code = main(["-y", "-p", "warm up", "-m", "script:script.json"])
        sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
        assert code == 0, Path("told").read_text()
        os.chdir("/")
    parts = (module.name for module in iter_modules(session.__path__, "interlock.cli.session."))
    for name in (*parts, "interlock.services.models.gemini"):
        import_module(name)
    gc.collect()
    gc.freeze()  # otherwise a child's collections copy the pages that it shares with us
    assert threading.active_count() == 1, "what other threads hold, a forked process never gets"


if __name__ == "__main__":
    _warm_up()
    with socket.socket(fileno=int(sys.argv[1])) as door:
        _serve(door)
