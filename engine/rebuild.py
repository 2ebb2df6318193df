"""rebuild: what of the rows that lists show disagrees with the checkpoints, and is made from them again.

Rule: `docs/internals.md#lists-agree-with-checkpoints`.
"""

import asyncio
from collections.abc import Callable
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from interlock.engine.driver.drive import pending_interrupts
from interlock.engine.read import list_runs
from interlock.engine.store import Store, explain_store_errors
from interlock.engine.store.approvals import list_keys_interrupts_and_answers, set_awaited_interrupts
from interlock.engine.store.connection import Connection
from interlock.engine.store.runs import list_run_statuses, set_run_status
from interlock.engine.store.saver import Saver, awaited_subtask, compute_status_and_outcome
from interlock.graphs import is_pipeline, load_pipeline
from interlock.graphs.graph import Compiled
from interlock.graphs.pipeline import Pipeline
from interlock.graphs.stored_channels import find_missing_pending_nodes
from interlock.state.subagent import MOST_DEPTH

OnProgress = Callable[[int, int], None]
"""Hears how many runs are done, of how many."""


class CheckpointStatus(NamedTuple):
    """A run's status according to its checkpoints."""

    status: str
    outcome: str
    step: int
    waits: dict[str, str]
    """Key of each request the graph is interrupted for → LangGraph's id."""


def rebuild_run_statuses_from_checkpoints(
    home: Path, on_progress: OnProgress = lambda _done, _total: None
) -> list[str]:
    """Make the rows agree with the checkpoints; return one line per run whose rows didn't."""
    return asyncio.run(_rebuild_undriven_statuses(home, on_progress))


async def _rebuild_undriven_statuses(home: Path, on_progress: OnProgress) -> list[str]:
    store = Store(home)
    with explain_store_errors(store.path), closing(store.connect("FULL")) as conn:
        driven = {row.run for row in list_runs(home, "running")}  # their drivers own those rows
        found: list[str] = []
        saver = Saver(conn)

        @cache  # a graph of thousands of runs is compiled once
        def compiled(workflow: str) -> Compiled:
            return load_pipeline(workflow).compile(saver, MOST_DEPTH)

        stored = list_run_statuses(conn)
        for number, (run, workflow, *row) in enumerate(stored, 1):
            on_progress(number, len(stored))
            known = is_pipeline(workflow) and run not in driven
            truth = (
                await _read_checkpoint_status(saver, run, load_pipeline(workflow), compiled)
                if known
                else None
            )
            if truth is not None and (row[0], truth.status) != ("cancelled", "open"):  # a person ended it
                found += _describe_status_differences(conn, run, tuple(row), truth)
                _write_status_and_awaited_interrupts(conn, run, truth)
        return found


async def _read_checkpoint_status(
    saver: Saver, run: str, declared: Pipeline, compiled: Callable[[str], Compiled]
) -> CheckpointStatus | None:
    """None: killed before its first checkpoint, or waiting for a node unknown here."""
    config: Any = {"configurable": {"thread_id": run}}
    newest = saver.get_tuple({"configurable": {"thread_id": run, "checkpoint_ns": ""}})
    if newest is None:
        return None
    status, outcome = compute_status_and_outcome(newest.checkpoint["channel_values"], declared.outcome)
    app = compiled(declared.name)
    if find_missing_pending_nodes(newest.checkpoint["channel_values"], app.nodes):
        return None  # a processor is due, which is known only in the run's folder
    snapshot = await app.aget_state(config, subgraphs=True)
    waits = {item.value: item.id for item in pending_interrupts(snapshot) if not awaited_subtask(item.value)}
    if (status == "open") != bool(snapshot.tasks):
        status = "open" if snapshot.tasks else "done"
    return CheckpointStatus(status, outcome, newest.metadata.get("step", 0), waits)


def _describe_status_differences(
    conn: Connection, run: str, row: tuple[Any, ...], truth: CheckpointStatus
) -> list[str]:
    found: list[str] = []
    if row != truth[:3]:
        found.append(f"run {run}: the row says {row!r}, the checkpoints {truth[:3]!r}")
    rows = list_keys_interrupts_and_answers(conn, run)
    stored = {key: name for key, name, answer in rows if name is not None and answer is None}
    answered = {key for key, _, answer in rows if answer is not None}
    waits = {key: name for key, name in truth.waits.items() if key not in answered}
    if stored != waits:
        found.append(
            f"run {run}: requests that wait are {sorted(stored)!r}, the checkpoints have {sorted(waits)!r}"
        )
    return found


def _write_status_and_awaited_interrupts(conn: Connection, run: str, truth: CheckpointStatus) -> None:
    with conn.transaction():
        set_run_status(conn, run, truth.status, truth.outcome, truth.step)
        set_awaited_interrupts(conn, run, truth.waits)
