"""warm: `interlock` as a separate process without import time: it is forked from one that has imported everything.

It has its own arguments, folder, environment, streams, terminal, signals and exit. Behaviour at startup is tested with
processes started from scratch: imports, the environment block, what is typed before anything is shown.
"""

import atexit
import functools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from forker import STATUS
from patience import HANG_S


class Warm:
    """Like `subprocess.Popen`, as far as tests need it. A `terminal`, on its stdin, belongs to the process alone.

    `program`: a Python file to run in place of `interlock`.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        stdin: int = subprocess.DEVNULL,
        stdout: int = subprocess.DEVNULL,
        stderr: int = 2,
        terminal: bool = False,
        program: Path | None = None,
    ) -> None:
        given = {"arguments": [*arguments], "cwd": str(cwd), "env": {**env}, "terminal": terminal}
        given["program"] = str(program or "")
        self._told, telling = os.pipe()
        self.stdout, ends = None, [telling]
        if stdout == subprocess.PIPE:
            ours, stdout = os.pipe()
            self.stdout = os.fdopen(ours)
            ends.append(stdout)
        with tempfile.TemporaryFile() as request, Path(os.devnull).open("r+b") as nothing:
            request.write(json.dumps(given).encode())
            request.flush()
            streams = [nothing.fileno() if fd == subprocess.DEVNULL else fd for fd in (stdin, stdout, stderr)]
            socket.send_fds(_door(), [b"x"], [request.fileno(), *streams, telling])
        for end in ends:
            os.close(end)
        self.pid = int.from_bytes(os.read(self._told, STATUS), sys.byteorder)
        assert self.pid, "the process that forks is gone"
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._told], [], [], 0)[0]:
            self._reap()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._told], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("interlock", timeout or 0)
            self._reap()
        assert self.returncode is not None
        return self.returncode

    def ends(self) -> tuple[int, str]:
        """Wait for its end; returns its exit code, and what it wrote to a piped stdout."""
        assert self.stdout
        with self.stdout as stdout:
            out = stdout.read()
        return self.wait(HANG_S), out

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _reap(self) -> None:
        status = os.read(self._told, STATUS)
        os.close(self._told)
        self.returncode = os.waitstatus_to_exitcode(int.from_bytes(status, sys.byteorder))

    def __del__(self) -> None:
        if getattr(self, "returncode", 0) is None:
            os.close(self._told)  # nobody waited for it


def run(
    arguments: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    stdin: str = "",
    program: Path | None = None,
    timeout: float | None = HANG_S,
) -> "subprocess.CompletedProcess[str]":
    """`subprocess.run`, with both streams captured as text."""
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write(stdin.encode())
        given.seek(0)
        streams = {"stdin": given.fileno(), "stdout": out.fileno(), "stderr": err.fileno()}
        process = Warm(arguments, cwd=cwd, env=env, program=program, **streams)
        try:
            code = process.wait(timeout)
        finally:
            process.kill()
        for written in (out, err):
            written.seek(0)
        return subprocess.CompletedProcess(arguments, code, out.read().decode(), err.read().decode())


@functools.cache
def _door() -> socket.socket:
    """A socket to the forking process, one per worker of the suite."""
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-P", str(Path(__file__).with_name("forker.py")), str(theirs.fileno())]
    process = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
    theirs.close()

    def close() -> None:
        ours.close()
        process.wait()

    atexit.register(close)
    return ours
