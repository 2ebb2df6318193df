"""Statecharts drive: what isn't an event of a chart in its state is committed by no door of the engine."""

import asyncio
from contextlib import closing
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from databases import DATABASES
from langgraph.graph import END, START
from typing_extensions import TypedDict

from interlock.engine.driver.lease import acquire
from interlock.engine.store import Store, put
from interlock.engine.store.runs import fence
from interlock.engine.store.saver import Saver
from interlock.graphs._pipeline import Graph
from interlock.state.charted import ApprovalModeState, CallState
from interlock.state.charts import CHARTS, ApprovalModeChart, ToolCallChart, mode_of, reached, step
from interlock.state.deps import Token
from interlock.state.errors import BusyError, RunError
from interlock.state.node import node

STATES = {
    "run": ["created", "running", "waiting", "interrupted", "done", "failed", "cancelled"],
    "tool-call": [
        "validating",
        "awaiting_approval",
        "scheduled",
        "executing",
        "success",
        "error",
        "cancelled",
    ],
    "approval-mode": [
        *("default", "auto_edit", "yolo"),
        *(f"plan.{phase}" for phase in ("requirements", "exploration", "design", "review")),
    ],
}


class Values(TypedDict, total=False):
    status: CallState
    attempt: int
    approval_mode: ApprovalModeState
    plan_phase: str


def values_at(name: str, state: str) -> Values:
    if name == "tool-call":
        return {"status": state}
    mode, _, phase = state.partition(".")
    return {"approval_mode": mode, "plan_phase": phase}


def committed(store: Store, name: str, before: Values, after: str) -> tuple[Values, bool]:
    """Run a graph of one node; returns the values in its newest checkpoint, and whether the node was refused."""

    @node(reads=(), writes=("status", "approval_mode", "plan_phase"))
    async def moves(_: Values) -> Values:
        return values_at(name, after)

    graph = Graph("t", Values)
    graph.nodes(moves)
    graph.edge(START, "moves")
    graph.edge("moves", END)
    with closing(store.connect()) as conn:
        saver = Saver(conn)
        app: Any = graph.compile(saver)
        deps: Any = SimpleNamespace(steps=saver.steps, cancel=Token(), emit=id)
        thread = f"{name}-{uuid4()}"  # a run's own: its steps stay
        config: Any = {"configurable": {"thread_id": thread}}
        refused = False
        try:
            asyncio.run(app.ainvoke(before, config, context=deps, durability="sync"))
        except RunError:
            refused = True
        found = saver.get_tuple(config)
        assert found is not None
        kept: dict[str, Any] = {k: v for k, v in found.checkpoint["channel_values"].items() if k in before}
        saver.delete_thread(thread)
    return Values(**kept), refused


ONE_STORE = pytest.mark.parametrize("store", [*DATABASES][:1], indirect=True)
"""A state is refused before any store is asked."""


@ONE_STORE
@pytest.mark.parametrize("name", ["tool-call", "approval-mode"])
def test_a_node_commits_no_state_that_events_do_not_lead_to(store: Store, name: str) -> None:
    """Also by a plain assignment; so no node switches to yolo, and nothing that is over begins again."""
    chart, tried = CHARTS[name], 0
    for old in STATES[name]:
        for new in {*STATES[name], "nonsense"} - reached(chart, old):
            before = values_at(name, old)
            assert committed(store, name, before, new) == (before, True), (old, new)
            tried += 1
    assert tried > 10
    old, new = ("scheduled", "executing") if name == "tool-call" else ("plan.exploration", "plan.design")
    assert committed(store, name, values_at(name, old), new) == (values_at(name, new), False)


def test_only_a_person_leads_to_yolo() -> None:
    for state in set(STATES["approval-mode"]) - {"yolo"}:
        assert "yolo" not in reached(ApprovalModeChart, state)
        assert step(ApprovalModeChart, state, "use_yolo") == "yolo"
    assert mode_of({"approval_mode": "plan", "plan_phase": ""}) == "plan.requirements"
    assert reached(ToolCallChart, "success") == {"success"}
    with pytest.raises(RunError):
        step(ToolCallChart, "success", "execute")


@pytest.mark.parametrize(
    ("status", "ends"),
    [("open", "done"), ("done", "cancelled"), ("failed", "turn_limit"), ("cancelled", "done")],
)
def test_nobody_ends_a_run_that_they_do_not_drive(store: Store, status: str, ends: str) -> None:
    """`finish`, `cancel` and `fail` are events of a running run, and running is whoever holds the lease."""
    root: Any = {"configurable": {"thread_id": "r", "checkpoint_ns": ""}}
    saved: Any = {"id": "1", "channel_values": {"status": ends}, "v": 4, "ts": ""}
    lease = asyncio.run(acquire(store, "r"))
    with closing(store.connect()) as conn:
        row = {"run": "r", "workflow": "main", "workspace": "/", "title": "", "created": 0, "updated": 0}
        with conn.transaction():
            put(conn, "runs", {**row, "status": status, "options": "{}", "input": "{}"})

        def stored() -> str:
            return conn.execute("select status from runs").fetchone()[0]

        with closing(store.connect_driver()) as driver:
            fence(driver, lease)
            saver = Saver(driver)
            lease.release()
            saver.put(root, saved, {"source": "loop", "step": 1}, {})
            with pytest.raises(BusyError):
                driver.flush(last=True)
            assert stored() == status
        lease = asyncio.run(acquire(store, "r"))
        with closing(store.connect_driver()) as driver:
            fence(driver, lease)
            Saver(driver).put(root, saved, {"source": "loop", "step": 1}, {})
            driver.flush()
            assert stored() == {"done": "done", "cancelled": "cancelled"}.get(ends, "failed")
        lease.release()
