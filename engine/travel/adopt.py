"""adopt: a run made of a thread that LangGraph drove elsewhere; the thread's own database isn't changed."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from datetime import datetime
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

from interlock.engine.driver.drive import check_stored, pending
from interlock.engine.driver.of_run import kept_options
from interlock.engine.driver.prepare import prepare
from interlock.engine.options import Options
from interlock.engine.store import Store, explained
from interlock.engine.store.approvals import SqlApprovals, number_requests
from interlock.engine.store.connection import Connection
from interlock.engine.store.foreign import ForeignSaver, Memory
from interlock.engine.store.runs import NewRun, insert_run, new_run_id, set_status
from interlock.engine.store.steps import StepLog, StepRow, write_steps
from interlock.engine.store.threads import thread_of
from interlock.engine.workflows import find_workflow, only_graph
from interlock.graphs.foreign import Foreign
from interlock.state.errors import RunError, UserError


def adopt_thread(workflow: str, url: str, thread: str, options: Options) -> str:
    """Make a run of a thread of a LangGraph graph; returns its id. What the thread waits for become requests.

    Raises `UserError` for a thread that isn't there, holds what the graph's types don't name, or stands where this
    graph can't go on. `workflow`: empty: the one that the folder's `langgraph.json` names.
    """
    workflow = workflow or only_graph(options)
    chosen, source = find_workflow(workflow, options)
    if not isinstance(chosen, Foreign):
        raise UserError(
            f"{workflow!r} isn't a LangGraph graph, so it can't continue a thread. Give FILE.py:graph."
        )
    prepared = prepare(replace(options, source=source), chosen.needs_model)
    store, run = Store(options.home), new_run_id()
    store.open()
    with explained(store.path), closing(store.connect("FULL")) as conn:
        steps, approvals = StepLog(prepared.redact, conn, run), SqlApprovals(conn, run, prepared.redact)
        saver = ForeignSaver(conn, steps, chosen, approvals, Memory(store.path))
        found = thread_of(url, thread, chosen.types, saver.known)
        kept = prepared.redact.json(kept_options(prepared.options))
        title, root = f"thread {thread}", str(prepared.workspace.root)
        with conn.transaction():
            insert_run(conn, NewRun(run, chosen.name, root, title, kept, {}))
            for one in found:
                saver.take_over(run, one)
            try:
                _settle(conn, chosen, saver, run)
            except RunError as misfit:
                why = str(misfit).partition(": ")[2].partition(", which")[0]
                raise UserError(
                    f"Thread {thread!r} doesn't fit {workflow!r}: {why}, which this graph doesn't have. Give the graph "
                    "that drove it."
                ) from misfit
    return run


def _settle(conn: Connection, chosen: Foreign, saver: ForeignSaver, run: str) -> None:
    """Derive from the checkpoints what the run's lists and pages show."""
    graph = chosen.declared()
    app = graph.compile(saver)
    config = {"configurable": {"thread_id": run}}
    check_stored(run, graph, app, cast(Any, SimpleNamespace(config=config, tasks=())), saver)
    snapshot: Any = app.get_state(config, subgraphs=True)
    check_stored(run, graph, app, snapshot, saver)
    _write_steps(conn, run, [*app.get_state_history(config)][::-1], chosen.name)
    for task in _innermost(snapshot):
        for item in task.interrupts:
            saver.ask(run, item, task.name)
    waits = {item.id for item in pending(snapshot)}
    status = "waiting" if waits else "open" if snapshot.tasks else "done"
    set_status(conn, run, status, "done" if status == "done" else "", snapshot.metadata["step"])
    number_requests(conn, run)


def _innermost(snapshot: Any) -> list[Any]:
    found: list[Any] = []
    for task in snapshot.tasks:
        found += _innermost(task.state) if hasattr(task.state, "tasks") else [task]
    return found


def _write_steps(conn: Connection, run: str, history: Sequence[Any], workflow: str) -> None:
    """Each node that ended, timed by the checkpoints around it."""
    steps: list[StepRow] = []
    for before, after in pairwise(history):
        started, ended = (datetime.fromisoformat(one.created_at).timestamp() for one in (before, after))
        name = before.config["configurable"]["checkpoint_id"]
        for task in before.tasks:
            if task.name.startswith("__"):
                continue
            keys, step = ",".join(task.result or ()), (before.metadata["step"], name[-12:])
            place = (run, len(steps), "", task.id.partition("-")[0], workflow, task.name)
            steps.append(StepRow(*place, started, (ended - started) * 1000, keys, None, None, *step))
    write_steps(conn, steps, set())
