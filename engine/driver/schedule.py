"""schedule: keeps what a schedule starts, in place of a run."""

from collections.abc import Mapping
from contextlib import closing
from typing import Any

from interlock.engine.options import Options, Outcome
from interlock.engine.store import Store, queue
from interlock.engine.store.integrity import blame_damaged_rows
from interlock.engine.store.queue import Schedule, require_queue

STATE_OPTIONS = ("mode", "protocol")
"""Options that a run's state keeps, not its row."""


def store_schedule(
    store: Store, options: Options, workflow: str, title: str, root: str, kept: Mapping[str, Any], input: Any
) -> Outcome:
    """Keep a schedule in place of a run; the outcome's `run` is its name, and its `output` has the first time."""
    assert options.schedule
    kept = {**kept, **{name: getattr(options, name) for name in STATE_OPTIONS}}
    made = Schedule(
        **options.schedule,
        workflow=workflow,
        title=title,
        workspace=root,
        queue=options.queue,
        options=kept,
        input=input,
    )
    with blame_damaged_rows(store.path), closing(store.connect()) as conn, conn.transaction():
        first = queue.add(require_queue(conn), made)
    return Outcome(made.name, workflow, "scheduled", 0, output={"next": first.timestamp()})
