"""Statecharts drive: what isn't an event of a chart in its state is committed by no door of the engine."""

import asyncio
from contextlib import closing
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from databases import DATABASES
from drawn import KEEPS_NOTHING
from langgraph.graph import END, START
from typing_extensions import TypedDict

from interlock.engine.driver.lease import acquire_lease
from interlock.engine.store import Store
from interlock.engine.store.leases import fence_commits
from interlock.engine.store.saver import Saver
from interlock.graphs.graph import Graph
from interlock.nodes.tools_batch import collect
from interlock.state.chart_channels import ApprovalModeState, CallState
from interlock.state.charts import (
    CHARTS,
    VERDICTS,
    ApprovalModeChart,
    ToolCallChart,
    approval_mode_state,
    legal_moves,
    next_state,
    reachable_states,
)
from interlock.state.deps import Token
from interlock.state.errors import BusyError, RunError, SetupError
from interlock.state.node import find_node_spec, node

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
    plan_verdict: str


def values_at(name: str, state: str) -> Values:
    if name == "tool-call":
        return {"status": state}
    mode, _, phase = state.partition(".")
    return {"approval_mode": mode, "plan_phase": phase}


def committed(
    store: Store, name: str, before: Values, *after: str, may: tuple[str, ...] = (), verdict: str = ""
) -> tuple[Values, bool]:
    """Run nodes in one superstep; returns the values in the newest checkpoint, and whether a node was refused.

    `after`: the state that each node moves to. `may`: the moves that each declares. `verdict`: a person's on the plan.
    """
    graph = Graph("t", Values)
    for number, state in enumerate(after):

        @node(reads=(), writes=("status", "approval_mode", "plan_phase", "plan_verdict"), moves=may)
        async def moves(_: Values, state: str = state) -> Values:
            return {**values_at(name, state), "plan_verdict": verdict} if verdict else values_at(name, state)

        graph.node(f"moves{number}", moves)
    names = [f"moves{number}" for number in range(len(after))]
    graph.edge(START, *names, END)
    graph.together(*names)
    with closing(store.connect()) as conn:
        saver = Saver(conn)
        app: Any = graph.compile(saver)
        deps: Any = SimpleNamespace(steps=saver.steps, cancel=Token(), emit=id, effects=KEEPS_NOTHING)
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
def test_a_nodes_update_is_one_move_that_it_declares(store: Store, name: str) -> None:
    """Also by a plain assignment: no node switches to yolo, nothing that is over begins again, nothing is skipped."""
    chart = CHARTS[name]
    for old in STATES[name]:
        before = values_at(name, old)
        events = legal_moves(chart, old)
        own = tuple(event for event in events if not event.startswith("use_"))
        legal = {old, *(events[event] for event in own)}
        for new in {*STATES[name], "nonsense"} - legal:
            assert committed(store, name, before, new, may=own) == (before, True), (old, new)
        for new in legal - {old}:
            assert committed(store, name, before, new) == (before, True), "it declares none"
            verdict = next((event for event in VERDICTS if events.get(event) == new), "")
            assert not verdict or committed(store, name, before, new, may=own) == (before, True), (
                "nobody said so"
            )
            assert committed(store, name, before, new, may=own, verdict=verdict) == (
                values_at(name, new),
                False,
            )


@ONE_STORE
def test_in_a_shared_superstep_each_node_makes_its_own_move(store: Store) -> None:
    begun, ran = values_at("tool-call", "scheduled"), values_at("tool-call", "success")
    may = ("execute", "succeed")
    assert committed(store, "tool-call", begun, "executing", "success", may=may) == (ran, False)
    assert committed(store, "tool-call", begun, "executing", "executing", "scheduled", may=may) == (
        begun,
        True,
    )
    assert committed(store, "tool-call", begun, "success", may=may) == (begun, True)
    assert committed(store, "tool-call", begun, "success", may=("execute succeed",)) == (ran, False)
    default = values_at("approval-mode", "default")
    may = ("enter_plan_mode", "exit_plan_mode", "approve_auto_edit")
    assert committed(store, "approval-mode", default, "plan.requirements", "auto_edit", may=may) == (
        default,
        True,
    )


@ONE_STORE
def test_a_run_without_a_mode_begins_with_the_first(store: Store) -> None:
    for mode in ("yolo", "auto_edit"):
        assert committed(store, "approval-mode", Values(approval_mode=""), mode, may=("enter_plan_mode",))[1]


@pytest.mark.parametrize("event", ["use_yolo", "use_auto_edit", "use_default", "read use_yolo*"])
def test_no_node_declares_what_only_a_person_does(event: str) -> None:
    with pytest.raises(SetupError, match="only a person makes 'use_"):
        node(moves=(event,))


def test_the_end_of_a_batch_makes_only_the_moves_that_a_batch_can_make() -> None:
    """It leaves no plan in review, allows edits only directly or by a person's verdict, and never leaves yolo."""
    moves = find_node_spec(collect).moves  # pyright: ignore[reportOptionalMemberAccess]

    def ends(old: str, *said: str) -> set[str]:
        return {*reachable_states(ApprovalModeChart, old, moves, VERDICTS - {*said})} - {old}

    planning = {f"plan.{phase}" for phase in ("requirements", "exploration", "design")}
    assert ends("yolo") == set()
    assert ends("auto_edit") == planning
    assert ends("default") == {*planning, "auto_edit"}
    assert ends("default", "approve_auto_edit") == {*planning, "auto_edit"}
    for phase in (*planning, "plan.review"):
        assert ends(phase) <= planning
        assert ends(phase, "approve_default") - planning == {"default"}
        assert ends(phase, "approve_auto_edit") - planning == {"auto_edit"}


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        ("approval_mode", str),
        ("approval_mode", CallState),
        ("plan_phase", int),
        ("hooked", str),
        ("mode", int),
        ("retry", int),
        ("time_left_s", float),
        ("route_ms", int),
        ("noted_epoch", int),
    ],
)
def test_a_state_can_not_declare_a_channel_of_the_engine_anew(key: str, kind: Any) -> None:
    with pytest.raises(SetupError, match=f"declares '{key}' as .* but it is the engine's"):
        Graph("t", TypedDict("Own", {key: kind}, total=False))  # pyright: ignore


def test_only_a_person_leads_to_yolo() -> None:
    for state in set(STATES["approval-mode"]) - {"yolo"}:
        leads = {event for event, target in legal_moves(ApprovalModeChart, state).items() if target == "yolo"}
        assert leads == {"use_yolo"}
    assert approval_mode_state({"approval_mode": "plan", "plan_phase": ""}) == "plan.requirements"
    assert legal_moves(ToolCallChart, "success") == {}
    with pytest.raises(RunError):
        next_state(ToolCallChart, "success", "execute")


@pytest.mark.parametrize(
    ("status", "ends"),
    [("open", "done"), ("done", "cancelled"), ("failed", "turn_limit"), ("cancelled", "done")],
)
def test_nobody_ends_a_run_that_they_do_not_drive(store: Store, status: str, ends: str) -> None:
    """`finish`, `cancel` and `fail` are events of a running run, and running is whoever holds the lease."""
    root: Any = {"configurable": {"thread_id": "r", "checkpoint_ns": ""}}
    saved: Any = {"id": "1", "channel_values": {"status": ends}, "v": 4, "ts": ""}
    lease = asyncio.run(acquire_lease(store, "r"))
    with closing(store.connect()) as conn:
        row = {"run": "r", "workflow": "main", "workspace": "/", "title": "", "created": 0, "updated": 0}
        with conn.transaction():
            conn.insert("runs", {**row, "status": status, "options": "{}", "input": "{}"})

        def stored() -> str:
            return conn.execute("select status from runs").fetchone()[0]

        with closing(store.connect_for_driver()) as driver:
            fence_commits(driver, lease)
            saver = Saver(driver)
            lease.release()
            saver.put(root, saved, {"source": "loop", "step": 1}, {})
            with pytest.raises(BusyError):
                driver.flush(drop_on_failure=True)
            assert stored() == status
        lease = asyncio.run(acquire_lease(store, "r"))
        with closing(store.connect_for_driver()) as driver:
            fence_commits(driver, lease)
            Saver(driver).put(root, saved, {"source": "loop", "step": 1}, {})
            driver.flush()
            assert stored() == {"done": "done", "cancelled": "cancelled"}.get(ends, "failed")
        lease.release()
