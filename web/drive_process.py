"""drive_process: drives one run in a process of its own, which outlives the server; its live events go to a file.

The server's side starts such processes, stops them, and reads what they write while they work. In the process, the work
comes pickled on stdin. One line on stdout says that the run goes, or why it doesn't.
"""

import asyncio
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from interlock.cli.warm.fork_client import FORKER, Child
from interlock.engine.client import Client, Options, RunRow, api_rows, fleet
from interlock.engine.client.program_drive import ApiDriveRequest
from interlock.services.files.disk import (
    ensure_private_file,
    make_private_directory,
    require_path_below,
)
from interlock.services.process.identity import (
    ProcessIdentity,
    current_process_identity,
    host_and_pid_namespace,
    is_alive,
    process_start_time,
)
from interlock.services.process.stdout import original_stdout, redirect_stdout_to_stderr
from interlock.state.errors import BusyError, InterlockError, UserError, as_bug_error
from interlock.state.events import Event


@dataclass(frozen=True)
class DriveJob:
    options: Options
    run: str
    workflow: str = ""
    """What to start under the id `run`; empty: go on with `run`."""
    input: Mapping[str, Any] = field(default_factory=dict[str, Any])
    prompt: str | None = None
    call: ApiDriveRequest | None = None
    """Of a program, by the API."""
    within_limits: bool = False
    """Limits over all workers hold for it (`prompts.py`)."""


def live_events_path(home: Path, run: str) -> Path:
    """Return where the newest drive of a run writes its events: first its process id, then a JSON object a line."""
    return require_path_below(home / "live", f"{run}.jsonl")


class AdoptedProcess:
    """A drive's process that another server started, or an earlier one."""

    def __init__(self, owner: ProcessIdentity) -> None:
        self._owner = owner

    def poll(self) -> int | None:
        """As of a child; None: it lives."""
        return None if is_alive(self._owner) else -1

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self._owner.pid, number)


class DriveDiedError(UserError):
    """A drive's process ended before its run went."""


_DIED = "died"
_ERRORS = {BusyError.kind: BusyError, _DIED: DriveDiedError}
_LOOK_S = 0.05
"""Seconds between two looks at the file of a drive."""
_MOST = 1_000_000
"""Bytes of it that are read at once."""


async def start_drive_process(job: DriveJob, on_started: Callable[[Child], None] = lambda _: None) -> Child:
    """Start a drive; returns its process when its run goes. Raises `UserError` with why it doesn't.

    `on_started` gets the process before, which does nothing if that raises.
    """
    child, made = await asyncio.to_thread(_launch_and_await_first_answer, job, on_started)
    if "error" in made:
        raise _ERRORS.get(made.get("kind", ""), UserError)(made["error"])
    return child


def _launch_and_await_first_answer(
    job: DriveJob, on_started: Callable[[Child], None]
) -> tuple[Child, Mapping[str, str]]:
    stdin, given = os.pipe()
    told, stdout = os.pipe()
    with os.fdopen(given, "wb") as giving, os.fdopen(told, "rb") as telling:
        try:
            child = FORKER.start(__name__, stdin=stdin, stdout=stdout)
        finally:
            os.close(stdin)
            os.close(stdout)
        on_started(child)
        with suppress(BrokenPipeError), giving:  # it was killed meanwhile, and answers nothing
            giving.write(pickle.dumps(job))
        line = telling.readline()
    died = {"error": f"The process of run {job.run!r} died before it began.", "kind": _DIED}
    made = child, json.loads(line) if line else died
    if isinstance(child, subprocess.Popen):
        threading.Thread(target=child.wait, daemon=True).start()
    return made


def child_process_identity(child: Child) -> ProcessIdentity:
    """Return who the process of a drive is, for a later server."""
    return current_process_identity()._replace(pid=child.pid, started=process_start_time(child.pid))


def interrupt_drive(client: Client, run: str) -> None:
    """Stop a run that a server's drive works on, as Ctrl-C does."""
    os.kill(_driver_pid_or_zero(client.home, run), signal.SIGINT)


def is_driven_by_server(client: Client, row: RunRow) -> bool:
    """Return whether a server's drive works on the run."""
    return row.owner == f"{host_and_pid_namespace()}:{_driver_pid_or_zero(client.home, row.run)}"


def _driver_pid_or_zero(home: Path, run: str) -> int:
    try:
        with live_events_path(home, run).open() as file:
            return int(file.readline())
    except (OSError, ValueError):
        return 0


async def tail_live_events(home: Path, run: str) -> AsyncGenerator[dict[str, Any]]:
    """Live events of a run that a server's drive works on, from after the last complete answer; never ends.

    A drive that begins later is followed, too. Nothing is kept in memory for a slow reader.
    """
    path, place, inode, rest = live_events_path(home, run), 0, 0, b""
    first = True
    while True:
        try:
            with path.open("rb") as file:
                if inode != (now := os.fstat(file.fileno()).st_ino):
                    inode, place, rest = now, _offset_after_last_answer(file.read()) if first else 0, b""
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


def _offset_after_last_answer(data: bytes) -> int:
    """Return the place behind the last answer that is complete: the record has it."""
    last = place = 0
    for line in data.splitlines(keepends=True):
        place += len(line)
        if line.endswith(b"\n") and b'"type":"message"' in line and b'"delta":false' in line:
            last = place
    return last


# In the process


class _LiveEventsWriter:
    """A renderer that writes events to the run's file, and tells the server once that the run goes."""

    def __init__(self, path: Path) -> None:
        make_private_directory(path.parent)
        fresh = path.with_suffix(f".{os.getpid()}")
        ensure_private_file(fresh)
        self._file = fresh.open("w", encoding="utf-8", errors="backslashreplace")
        self._file.write(f"{os.getpid()}\n")
        self._file.flush()
        fresh.replace(path)

    def __call__(self, event: Event, /) -> None:
        if event.type == "init":
            report_to_server({})
        self._file.write(event.model_dump_json() + "\n")

    def flush(self) -> None:
        self._file.flush()


def report_to_server(answer: Mapping[str, str]) -> None:
    """The one line for the server, which may be gone."""
    with suppress(OSError, ValueError):
        os.write(original_stdout().fileno(), json.dumps(answer).encode() + b"\n")


async def _execute_job(job: DriveJob) -> None:
    live = _LiveEventsWriter(live_events_path(job.options.home, job.run))
    if job.call:
        from interlock.web.api.drive_recorder import drive_and_record_stream

        await drive_and_record_stream(job.options, job.run, job.workflow, job.call, live)
    elif job.workflow:
        await Client(job.options).start(job.workflow, job.input, renderers=[live], run=job.run)
    elif job.within_limits:
        await _resume_run_within_limits(job, live)
    else:
        await Client(job.options).resume(job.run, job.prompt, renderers=[live], replace_unfinished=True)


async def _resume_run_within_limits(job: DriveJob, live_writer: _LiveEventsWriter) -> None:
    """Go on with a run; what a limit over all workers stops waits for its next turn."""
    options = fleet.with_fleet_limits(job.options)
    api_rows.update_api_row_if_exists(options.home, "prompt", job.run, {"status": "running", "prompt": None})
    outcome = await Client(options).resume(
        job.run, job.prompt, renderers=[live_writer], replace_unfinished=True
    )
    if outcome.status in ("budget", "timeout") and (
        wait := fleet.requeue_or_record_limit_stop(options, job.run)
    ):
        waits = {"model": wait.model, "after_s": wait.seconds}
        status = "running" if wait.seconds is None else "pending"
        api_rows.update_api_row_if_exists(options.home, "prompt", job.run, {"status": status, **waits})


def main() -> None:
    try:
        work: DriveJob = pickle.load(sys.stdin.buffer)
    except EOFError:
        return  # it was cancelled before it began
    with redirect_stdout_to_stderr():
        try:
            asyncio.run(_execute_job(work))
            report_to_server({})
        except Exception as error:
            failure = error if isinstance(error, InterlockError) else as_bug_error(error)
            report_to_server({"error": str(failure), "kind": failure.kind})
