"""schedule_process: starts a run of a schedule when its time has come, in a process of its own."""

import asyncio
import os
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

from interlock import engine
from interlock.engine.driver.delegation import derive_run_id
from interlock.engine.driver.run_definition import WORKER_DOOR, restore_options
from interlock.engine.driver.submission import STATE_OPTIONS
from interlock.engine.options import Options
from interlock.engine.read import find_exact_run
from interlock.engine.store import Store, open_reader, queue
from interlock.fleet.drive_process import exit_when_worker_ends
from interlock.fleet.worker import TRY_AGAIN
from interlock.state.errors import BusyError, InterlockError, StoreError

_UNDER_WAY = ("running", "queued", "waiting")


def main(schedule_name: str, due: str, state_directory: str) -> int:
    home = Path(state_directory)
    threading.Thread(target=exit_when_worker_ends, daemon=True).start()
    try:
        with open_reader(home) as conn:
            assert conn is not None
            found = queue.find_schedule(conn, schedule_name)
        if found is None:
            return 0
        run, said = _start_run_unless_one_is_active(home, found, due)
        with Store(home).write_transaction() as conn:
            queue.record_start_and_enqueue_next(conn, schedule_name, run, said)
    except (BusyError, StoreError) as error:
        print(error, file=sys.stderr)
        return TRY_AGAIN
    return 0


def _start_run_unless_one_is_active(home: Path, schedule: queue.Schedule, due: str) -> tuple[str, str]:
    """Return the run that was started last, and why none was now."""
    run = derive_run_id(f"{schedule.name} at {due}")
    if find_exact_run(home, run):  # before a kill
        return run, ""
    earlier = find_exact_run(home, schedule.run)
    if earlier and earlier.status in _UNDER_WAY:
        return schedule.run, f"Run {schedule.run!r} was {earlier.status}, so no other was started."
    try:
        options = _restore_schedule_options(home, schedule)
        asyncio.run(engine.run(schedule.workflow, schedule.input, options=options, run_id=run))
    except (BusyError, StoreError):
        raise
    except InterlockError as error:
        return schedule.run, str(error)
    return run, ""


def _restore_schedule_options(home: Path, schedule: queue.Schedule) -> Options:
    kept = schedule.options
    new = Options(home=home, door=WORKER_DOOR, env=dict(os.environ), queue=schedule.queue)
    made = restore_options(new, kept, schedule.workspace)
    more: Any = {name: kept[name] for name in STATE_OPTIONS}
    return replace(made, **more, workspace=None if kept.get("repository") else made.workspace)
