"""submission: leaves runs to workers: a new one with its job, a schedule in place of one, a resumed one.

Imported only then: what keeps jobs comes with an extra.
"""

from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any

from interlock.engine.driver.decisions import record_decisions
from interlock.engine.driver.drive import DriveInput, open_drive
from interlock.engine.driver.event_bus import EventBus
from interlock.engine.driver.lease import Lease
from interlock.engine.driver.local_worker import ensure_local_worker, offer_secrets
from interlock.engine.driver.run_config import RunConfig
from interlock.engine.driver.stop import Stop
from interlock.engine.options import Decision, Options, Outcome, Renderer
from interlock.engine.read import RunRow
from interlock.engine.store import Store, queue
from interlock.engine.store.diagnosis import explain_store_errors_and_damage
from interlock.engine.store.queue import Schedule, require_queue
from interlock.engine.store.runs import read_options, set_run_option
from interlock.graphs.pipeline import Pipeline

STATE_OPTIONS = ("mode", "protocol")
"""Options that a run's state keeps, not its row."""


def store_schedule(
    store: Store,
    options: Options,
    workflow: str,
    title: str,
    workspace: str,
    stored_options: Mapping[str, Any],
    input: Any,
) -> Outcome:
    """Keep a schedule in place of a run; the outcome's `run` is its name, and its `output` has the first time."""
    assert options.schedule
    made = Schedule(
        **options.schedule,
        workflow=workflow,
        title=title,
        workspace=workspace,
        queue=options.queue,
        options={**stored_options, **{name: getattr(options, name) for name in STATE_OPTIONS}},
        input=input,
    )
    with explain_store_errors_and_damage(store.path), closing(store.connect()) as conn, conn.transaction():
        first = queue.add_schedule(require_queue(conn), made)
    ensure_local_worker(store.home, env=options.env)
    return Outcome(made.name, workflow, "scheduled", 0, output={"next": first.timestamp()})


async def store_queued_run(
    store: Store,
    lease: Lease,
    pipeline: Pipeline,
    prepared: RunConfig,
    renderers: Sequence[Renderer],
    stop: Stop,
    make_input: DriveInput,
) -> Outcome:
    """Store a new run, and the job that lets a worker of its queue drive it, in one transaction."""
    bus = EventBus(renderers, redact=prepared.redact)
    try:
        with explain_store_errors_and_damage(store.path):
            async with open_drive(store, lease, pipeline, prepared, bus, stop) as drive:
                offer_secrets(store.home, lease.run, prepared.options.env)
                with drive.conn.transaction(synced=True) as conn:
                    await make_input(drive)
                    queue.enqueue_run(conn, lease.run, prepared.options.queue)
    finally:
        await bus.close()
    ensure_local_worker(store.home, lease.run, prepared.options.env)
    return _queued_outcome(lease.run, pipeline.name, prepared.warnings)


def hand_over_to_workers(
    store: Store, row: RunRow, decisions: Sequence[Decision], options: Options
) -> Outcome:
    """The decisions are persisted, as are limits given now, and a worker drives the run.

    Of its own queue, unless it has none or is to move.
    """
    if options.limits or options.queue or not decisions:
        with (
            explain_store_errors_and_damage(store.path),
            closing(store.connect()) as conn,
            conn.transaction(),
        ):
            if options.limits:
                before: dict[str, Any] = read_options(conn, row.run).get("limits") or {}
                set_run_option(conn, row.run, "limits", {**before, **options.limits})
            if options.queue and (options.moves_queue or not row.queue):
                set_run_option(conn, row.run, "submitted", options.submitted or {})
                queue.assign_family_to_queue(conn, row.run, options.queue)
            if not decisions:
                queue.enqueue_run_if_worker_driven(conn, row.run)
    offer_secrets(store.home, row.run, options.env)
    record_decisions(store, row.run, decisions, door=options.door)  # with the job
    ensure_local_worker(store.home, row.run, options.env)
    return _queued_outcome(row.run, row.workflow)


def _queued_outcome(run: str, workflow: str, warnings: Sequence[str] = ()) -> Outcome:
    command = f"interlock logs {run} -f"
    return Outcome(run, workflow, "queued", 0, resume_command=command, warnings=[*warnings])
