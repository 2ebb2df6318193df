"""fork_client: starts programs of ours as forks of a process that has imported what they need (`forker`).

Where forks can't be trusted (not Linux), or that process can't live, each is started as a program of its own.
"""

import atexit
import marshal
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from interlock.cli.warm import WORD, variables_affecting_imports

_COLD = "import sys; from importlib import import_module as i; sys.exit(i(sys.argv[1]).main(*sys.argv[2:]))"


class Child(Protocol):
    """A process, as `subprocess.Popen` shows it."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None: ...

    def wait(self) -> int: ...

    def send_signal(self, number: int, /) -> None: ...


class Fork:
    """A forked process; `status_pipe` brings its pid, then its wait status. Raises `ConnectionError` without a pid."""

    def __init__(self, status_pipe: int) -> None:
        self._status_pipe = status_pipe
        self.pid = int.from_bytes(os.read(status_pipe, WORD), sys.byteorder)
        self.returncode: int | None = None
        if not self.pid:
            raise BrokenPipeError("the process that forks is gone")

    def poll(self) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._status_pipe], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("interlock", timeout or 0)
            status = os.read(self._status_pipe, WORD) or int(signal.SIGKILL).to_bytes(WORD, sys.byteorder)
            self.returncode = os.waitstatus_to_exitcode(int.from_bytes(status, sys.byteorder))
        return self.returncode

    def send_signal(self, number: int, /) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def __del__(self) -> None:
        os.close(self._status_pipe)


class ForkClient:
    """The process that forks. It is started when first asked, and ends unused, or when this one is gone."""

    def __init__(self, program: Sequence[str] = ("-m", "interlock.cli.warm.fork_server")) -> None:
        self._program = program
        self._lock = threading.Lock()
        self._server: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def start(
        self,
        module: str,
        *arguments: str,
        env: Mapping[str, str] | None = None,
        stdin: int = subprocess.DEVNULL,
        stdout: int = subprocess.DEVNULL,
        stderr: int = subprocess.DEVNULL,
    ) -> Child:
        """Run `module`'s `main(*arguments)` in a session of its own. Raises `OSError`."""
        env = {**os.environ} if env is None else env
        null = os.open(os.devnull, os.O_RDWR)
        try:
            streams = [null if fd == subprocess.DEVNULL else fd for fd in (stdin, stdout, stderr)]
            for _ in range(2 if sys.platform.startswith("linux") else 0):
                try:
                    return Fork(
                        self.request_fork_status_pipe(module, arguments, env, str(Path.cwd()), streams)
                    )
                except ConnectionError:  # it ended, or was killed; what it forked lives on
                    self.stop_server()
        finally:
            os.close(null)
        return subprocess.Popen(
            [sys.executable, "-P", "-c", _COLD, module, *arguments],
            env=env,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )

    def request_fork_status_pipe(
        self, module: str, arguments: Sequence[str], env: Mapping[str, str], cwd: str, streams: Sequence[int]
    ) -> int:
        """Ask for a fork; returns the pipe of its pid and end. Raises `ConnectionError` if the forker is gone."""
        given = {"module": module, "arguments": [*arguments], "env": {**env}, "cwd": cwd}
        given |= {"numbers": [*range(len(streams))]}
        request = os.memfd_create("start", os.MFD_CLOEXEC)
        told, telling = os.pipe()
        try:
            os.write(request, marshal.dumps(given))
            socket.send_fds(self.connect_or_start_server(), [b"x"], [telling, request, *streams])
        except BaseException:
            os.close(told)
            raise
        finally:
            os.close(request)
            os.close(telling)
        return told

    def connect_or_start_server(self) -> socket.socket:
        """Return the socket to the process that forks, which is started if there is none."""
        with self._lock:
            if self._server is None:
                self._server, theirs = socket.socketpair()
                with theirs:
                    self._process = subprocess.Popen(
                        [sys.executable, "-P", *self._program, str(theirs.fileno())],
                        env={
                            **variables_affecting_imports(os.environ),
                            "PATH": os.environ.get("PATH", os.defpath),
                        },
                        cwd="/",
                        stdin=subprocess.DEVNULL,
                        stdout=subprocess.DEVNULL,
                        start_new_session=True,
                        pass_fds=[theirs.fileno()],
                    )
            return self._server

    def adopt_server(self, server_socket: socket.socket) -> None:
        """Use the process that this one was itself forked from."""
        self._server = server_socket

    def stop_server(self) -> None:
        """End the process that forks; what it forked goes on."""
        with self._lock:
            if self._server:
                self._server.close()
            if self._process:
                self._process.kill()
                self._process.wait()
            self._server = self._process = None


FORKER = ForkClient()
atexit.register(FORKER.stop_server)
