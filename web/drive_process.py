"""drive_process: drives one run in a process of its own, which outlives the server; its live events go to a file.

The work comes pickled on stdin. One line on stdout says that the run goes, or why it doesn't.
"""

import asyncio
import json
import os
import pickle
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interlock.engine.client import Client, Options, api_rows, fleet
from interlock.services.files.disk import make_private_directory, make_private_file, path_below
from interlock.services.process.stdout import own_stdout, redirect_stdout_to_stderr
from interlock.state.errors import InterlockError, as_bug_error

if TYPE_CHECKING:
    from interlock.engine.client.program_drive import ProgramCall
    from interlock.state.events import Event


@dataclass(frozen=True)
class DriveJob:
    options: Options
    run: str
    workflow: str = ""
    """What to start under the id `run`; empty: go on with `run`."""
    input: Mapping[str, Any] = field(default_factory=dict[str, Any])
    prompt: str | None = None
    call: "ProgramCall | None" = None
    """Of a program, by the API."""
    in_turn: bool = False
    """Limits over all workers hold for it (`prompts.py`)."""


def live_events_file(home: Path, run: str) -> Path:
    """Where the newest drive of a run writes its events: first its process id, then a JSON object a line."""
    return path_below(home / "live", f"{run}.jsonl")


class _LiveEventsWriter:
    """A renderer that writes events to the run's file, and tells the server once that the run goes."""

    def __init__(self, path: Path) -> None:
        make_private_directory(path.parent)
        fresh = path.with_suffix(f".{os.getpid()}")
        make_private_file(fresh)
        self._file = fresh.open("w", encoding="utf-8", errors="backslashreplace")
        self._file.write(f"{os.getpid()}\n")
        self._file.flush()
        fresh.replace(path)

    def __call__(self, event: "Event", /) -> None:
        if event.type == "init":
            report_to_server({})
        self._file.write(event.model_dump_json() + "\n")

    def flush(self) -> None:
        self._file.flush()


def report_to_server(facts: Mapping[str, str]) -> None:
    """The one line for the server, which may be gone."""
    with suppress(OSError, ValueError):
        os.write(own_stdout().fileno(), json.dumps(facts).encode() + b"\n")


async def _execute_job(work: DriveJob) -> None:
    live = _LiveEventsWriter(live_events_file(work.options.home, work.run))
    if work.call:
        from interlock.web.api.drive_recorder import drive_and_record

        await drive_and_record(work.options, work.run, work.workflow, work.call, live)
    elif work.workflow:
        await Client(work.options).start(work.workflow, work.input, renderers=[live], run=work.run)
    elif work.in_turn:
        await _drive_within_limits(work, live)
    else:
        await Client(work.options).resume(work.run, work.prompt, renderers=[live], replace_unfinished=True)


async def _drive_within_limits(work: DriveJob, live: _LiveEventsWriter) -> None:
    """Go on with a run; what a limit over all workers stops waits for its next turn."""
    options = fleet.with_fleet_limits(work.options)
    api_rows.change(options.home, "prompt", work.run, {"status": "running", "prompt": None})
    outcome = await Client(options).resume(work.run, work.prompt, renderers=[live], replace_unfinished=True)
    if outcome.status in ("budget", "timeout") and (
        wait := fleet.record_and_read_limit_stop(options, work.run)
    ):
        waits = {"model": wait.model, "after_s": wait.seconds}
        status = "running" if wait.seconds is None else "pending"
        api_rows.change(options.home, "prompt", work.run, {"status": status, **waits})


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
