"""warm: `interlock` as a separate process without import time: it is forked from one that has imported everything.

It has its own arguments, folder, environment, streams, terminal, signals and exit. Behaviour at startup is tested with
processes started from scratch: imports, the environment block, what is typed before anything is shown.
"""

import atexit
import os
import signal
import socket
import subprocess
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import IO

import shared
from patience import HANG_S

from interlock.cli.warm.fork_client import Fork, ForkClient


@cache
def forker() -> ForkClient:
    """Started when first needed: which server's databases are for stores is known by then."""
    made = ForkClient([str(Path(__file__).with_name("forker.py")), os.environ.get("TEST_SERVER", "")])
    if shared.IS_OFFERED:
        made.adopt_server(socket.socket(fileno=shared.given("forker")[1][0]))
    atexit.register(made.stop_server)
    return made


class Warm(Fork):
    """Like `subprocess.Popen`, as far as tests need it. A `terminal`, on its stdin, belongs to the process alone.

    `program`: a Python file to run in place of `interlock`.
    """

    stdout: IO[str] | None = None
    stderr: IO[str] | None = None

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
        ends: list[int] = []
        if stdout == subprocess.PIPE:
            self.stdout, stdout = _piped(ends)
        if stderr == subprocess.PIPE:
            self.stderr, stderr = _piped(ends)
        words = ("terminal" if terminal else "", str(program or ""), *arguments)
        with Path(os.devnull).open("r+b") as nothing:
            streams = [nothing.fileno() if fd == subprocess.DEVNULL else fd for fd in (stdin, stdout, stderr)]
            door = forker().connect_or_start_server().fileno()
            super().__init__(
                forker().request_fork_status_pipe("forker", words, env, str(cwd), (*streams, door))
            )
        for end in ends:
            os.close(end)

    def ends(self) -> tuple[int, str]:
        """Wait for its end; returns its exit code, and what it wrote to a piped stdout."""
        assert self.stdout
        with self.stdout as stdout:
            out = stdout.read()
        return self.wait(HANG_S), out


def _piped(ends: list[int]) -> tuple[IO[str], int]:
    ours, theirs = os.pipe()
    ends.append(theirs)
    return os.fdopen(ours), theirs


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


@contextmanager
def worker(cwd: Path, env: Mapping[str, str]) -> Generator[None]:
    """What drives runs that a server with a store in PostgreSQL only queues."""
    run(["fleet", "init"], cwd=cwd, env=env).check_returncode()
    process = Warm(["worker"], cwd=cwd, env=env, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(HANG_S)


def memory_of(pid: int) -> bytes:
    """All that a process can write to, except guard pages, which nobody can read."""
    found: list[bytes] = []
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            at, end = (int(part, 16) for part in line.split()[0].split("-"))
            while "rw-p" in line and at < end:
                try:
                    found.append(os.pread(memory.fileno(), end - at, at))
                    at += len(found[-1])
                except OSError:
                    at += os.sysconf("SC_PAGE_SIZE")
    return b"".join(found)
