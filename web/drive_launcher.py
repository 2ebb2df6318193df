"""drive_launcher: starts drives in processes of their own, stops them, and reads what they write while they work."""

import asyncio
import json
import os
import pickle
import signal
import subprocess
import threading
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from interlock.cli.warm.fork_client import FORKER, Child
from interlock.engine.client import Client, RunRow
from interlock.services.process.identity import ProcessIdentity, host_name, is_alive
from interlock.state.errors import BusyError, UserError
from interlock.web import drive_process
from interlock.web.drive_process import DriveJob, live_events_file


class AdoptedProcess:
    """A drive's process that another server started, or an earlier one."""

    def __init__(self, owner: ProcessIdentity) -> None:
        self._owner = owner

    def poll(self) -> int | None:
        """As of a child; None: it lives."""
        return None if is_alive(self._owner) else -1

    def send_signal(self, signal: int) -> None:
        if self.poll() is None:
            os.kill(self._owner.pid, signal)


class DriveDiedError(UserError):
    """A drive's process ended before its run went."""


_DIED = "died"
_LOOK_S = 0.05
"""Seconds between two looks at the file of a drive."""
_MOST = 1_000_000
"""Bytes of it that are read at once."""


async def start_drive(work: DriveJob, started: Callable[[Child], None] = lambda _: None) -> None:
    """Start a drive; returns when its run goes. Raises `UserError` with why it doesn't.

    `started` gets its process, which does nothing if that raises.
    """
    made = await asyncio.to_thread(_launch_process, work, started)
    if made.get("kind") == BusyError.kind:
        raise BusyError(made["error"])
    if "error" in made:
        raise (DriveDiedError if made.get("kind") == _DIED else UserError)(made["error"])


def _launch_process(work: DriveJob, started: Callable[[Child], None]) -> Mapping[str, str]:
    stdin, given = os.pipe()
    told, stdout = os.pipe()
    with os.fdopen(given, "wb") as giving, os.fdopen(told, "rb") as telling:
        try:
            child = FORKER.start(drive_process.__name__, stdin=stdin, stdout=stdout)
        finally:
            os.close(stdin)
            os.close(stdout)
        started(child)
        with suppress(BrokenPipeError), giving:  # it was killed meanwhile, and answers nothing
            giving.write(pickle.dumps(work))
        line = telling.readline()
    if isinstance(child, subprocess.Popen):
        threading.Thread(target=child.wait, daemon=True).start()
    died = {"error": f"The process of run {work.run!r} died before it began.", "kind": _DIED}
    return json.loads(line) if line else died


def interrupt_drive(client: Client, run: str) -> None:
    """Stop a run that a server's drive works on, as Ctrl-C does."""
    os.kill(_driver_pid(client.home, run), signal.SIGINT)


def is_driven_by_server(client: Client, row: RunRow) -> bool:
    """Whether a server's drive works on the run."""
    return row.owner == f"{host_name()}:{_driver_pid(client.home, row.run)}"


def _driver_pid(home: Path, run: str) -> int:
    try:
        with live_events_file(home, run).open() as file:
            return int(file.readline())
    except (OSError, ValueError):
        return 0


async def tail_live_events(home: Path, run: str) -> AsyncGenerator[dict[str, Any]]:
    """Live events of a run that a server's drive works on, from after the last complete answer; never ends.

    A drive that begins later is followed, too. Nothing is kept in memory for a slow reader.
    """
    path, place, inode, rest = live_events_file(home, run), 0, 0, b""
    first = True
    while True:
        try:
            with path.open("rb") as file:
                if inode != (now := os.fstat(file.fileno()).st_ino):
                    inode, place, rest = now, _end_of_last_answer(file.read()) if first else 0, b""
                file.seek(place)
                data = file.read(_MOST)
        except OSError:
            data = b""
        first = False
        place += len(data)
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            if line.startswith(b"{"):
                yield json.loads(line)
        if not data:
            await asyncio.sleep(_LOOK_S)


def _end_of_last_answer(data: bytes) -> int:
    """The place behind the last answer that is complete: the record has it."""
    last = place = 0
    for line in data.splitlines(keepends=True):
        place += len(line)
        if line.endswith(b"\n") and b'"type":"message"' in line and b'"delta":false' in line:
            last = place
    return last
