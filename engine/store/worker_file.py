"""worker_file: which process is the worker of a store in a file, and what is told to it.

The worker holds the lock of a file: that ends with the process, however it ends, and leaves nothing to clean up after a
kill or a power cut. What others tell it goes through a named pipe, whose contents are never on disk.
"""

import fcntl
import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

from interlock.services.files.disk import make_private_directory
from interlock.services.process.identity import boot_id

_FILE, _BELL = "worker", "worker.bell"
_PATIENCE_S, _AGAIN_S = 1.0, 0.02
"""Seconds for which a worker that begins waits for the lock: whoever looks for one holds it for a moment."""
_TOLD_BYTES = 1 << 20


class WorkerProcess(NamedTuple):
    pid: int
    boot: str
    """The boot id of the machine when it began."""
    program: str
    """The Python that runs it."""
    version: str
    """Of Interlock; empty: it has just begun, or takes nothing more."""


class WorkerLock(NamedTuple):
    file: IO[str]
    earlier: WorkerProcess | None
    """The worker before this one; None: there was none."""

    def mark_stopping(self) -> None:
        """Say that this worker takes nothing more: whoever has work starts another, which waits for the lock."""
        self.file.seek(0)
        self.file.truncate()

    def is_in_place(self, home: Path) -> bool:
        """Return whether the lock is of the file that others look at: the folder may have been removed."""
        try:
            return os.path.samestat((home / _FILE).stat(), os.fstat(self.file.fileno()))
        except OSError:
            return False


def find_worker(home: Path) -> WorkerProcess | None:
    """Return the worker of the store in this folder; None: none runs."""
    try:
        with (home / _FILE).open("r", encoding="utf-8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return _parse(file.read()) or WorkerProcess(0, "", "", "")
    except OSError:
        pass
    return None


def had_worker(home: Path) -> bool:
    """Return whether the store in this folder ever had a worker."""
    return (home / _FILE).exists()


def become_worker(home: Path, program: str, version: str) -> WorkerLock | None:
    """Return the held lock; None: another process is the worker. Raises `OSError`."""
    make_private_directory(home)
    file = os.fdopen(os.open(home / _FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+")
    until = time.monotonic() + _PATIENCE_S
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if time.monotonic() > until:
                file.close()
                return None
            time.sleep(_AGAIN_S)
    earlier = _parse(file.read())
    file.seek(0)
    file.truncate()
    file.write(json.dumps(WorkerProcess(os.getpid(), boot_id(), program, version)))
    file.flush()
    return WorkerLock(file, earlier)


def _parse(text: str) -> WorkerProcess | None:
    with suppress(ValueError, TypeError):
        return WorkerProcess(*json.loads(text))
    return None


class Bell:
    """The worker's end of the pipe."""

    def __init__(self, home: Path) -> None:
        with suppress(FileExistsError):
            os.mkfifo(home / _BELL, 0o600)
        self.descriptor = os.open(home / _BELL, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._rest = b""

    def read_messages(self) -> list[dict[str, Any]]:
        """Return what was told since the last call."""
        with suppress(BlockingIOError):
            while told := os.read(self.descriptor, 1 << 16):
                self._rest += told
        *lines, self._rest = self._rest.split(b"\n")
        self._rest = self._rest[-_TOLD_BYTES:]
        found: list[dict[str, Any]] = []
        for line in lines:
            with suppress(ValueError):  # whoever wrote it was killed before its end
                found.append(json.loads(line))
        return found

    def close(self) -> None:
        os.close(self.descriptor)


def tell_worker(home: Path, run: str, secrets: Mapping[str, str]) -> bool:
    """Tell the worker that there may be work, and secrets that the run's shell had; returns whether one listens."""
    try:
        descriptor = os.open(home / _BELL, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:  # no pipe, or nobody at its other end
        return False
    line = json.dumps({"run": run, "secrets": {**secrets}}).encode() + b"\n"
    with os.fdopen(descriptor, "wb", buffering=0) as pipe, suppress(OSError):
        fcntl.flock(pipe, fcntl.LOCK_EX)  # a long line isn't written at once
        os.set_blocking(descriptor, True)
        pipe.write(line)
        return True
    return False
