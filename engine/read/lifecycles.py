"""lifecycles: the way that a call or a run's approval mode took through its statechart, with who decided each move."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from interlock.engine.read.calls import Call, find_call, list_calls, list_decisions_on_call
from interlock.engine.store import queries
from interlock.engine.store.checkpoints import list_root_checkpoints
from interlock.state.charts import ApprovalModeChart, Chart, ToolCallChart, approval_mode_state, next_state
from interlock.state.errors import UserError
from interlock.state.plan import MOVES_MARK

Decision = Mapping[str, Any]


class Move(NamedTuple):
    """One transition of a chart."""

    event: str
    source: str
    target: str
    by: Decision
    """The decision behind it, as in `Call.decided`; empty: nobody's."""
    why: str = ""
    """The same in words."""


class Lifecycle(NamedTuple):
    """The states that a call or a mode went through."""

    start: str
    moves: tuple[Move, ...]
    mark: str = ""
    """Label of the last state."""

    @property
    def current_state(self) -> str:
        return self.moves[-1].target if self.moves else self.start


class _ChartWalk:
    """A way through a chart; it takes only moves that the chart has."""

    def __init__(self, chart: type[Chart], start: str) -> None:
        self.chart, self.start, self.at = chart, start, start
        self.moves: list[Move] = []

    def follow_event(self, event: str, by: Decision | None = None, why: str = "") -> None:
        target = next_state(self.chart, self.at, event)
        self.moves.append(Move(event, self.at, target, by or {}, why))
        self.at = target

    def to_lifecycle(self, mark: str) -> Lifecycle:
        return Lifecycle(self.start, tuple(self.moves), mark)


def read_call_lifecycle(home: Path, run: str, call_or_request: str) -> Lifecycle:
    """The life of a call, by its number in `show --calls`, its id, or its open request's id or number.

    Raises `UserError` if the run has no such call.
    """
    made = list_calls(home, run)
    waits = {
        (m["message"], m["index"]): (row, m)
        for row in queries.list_waiting_requests(home, run)
        if (m := json.loads(row["request"]).get("attempt"))
    }
    for (message, index), (row, _) in waits.items():
        key = f"{message}.{index}."
        begun = any(call.key.startswith(key) and call.state != "scheduled" for call in made)
        if call_or_request in (row["id"], str(row["number"])) and not begun:
            return _call_lifecycle(
                None, list_decisions_on_call(home, run, message, index), waits_for_person=True
            )
    call = find_call(made, call_or_request, run)
    message, index, _ = call.key.rsplit(".", 2)
    return _call_lifecycle(call, call.decided, waits_for_person=(message, int(index)) in waits)


def _call_lifecycle(call: Call | None, decided: list[dict[str, Any]], waits_for_person: bool) -> Lifecycle:
    walk = _CallWalk()
    for decision in decided:
        walk.apply_decision(decision)
    if call is None or (call.state == "scheduled" and waits_for_person):
        if walk.at == "validating":
            walk.follow_event("ask", walk.asker)
        return walk.to_lifecycle("waits here")
    if call.state == "scheduled":
        return walk.to_lifecycle("not run yet")
    walk.apply_result(call)
    running = call.state == "intent"
    return walk.to_lifecycle("" if not running else "runs now" if call.under_way else "outcome unknown")


class _CallWalk(_ChartWalk):
    """A call's way, from the decisions on it and what the journal says of it."""

    def __init__(self) -> None:
        super().__init__(ToolCallChart, "validating")
        self.asker: Decision = {}
        """What asked for a person."""
        self.permit: Decision = {}
        """What the call may run by."""
        self.answer: Decision = {}
        """What a person answered to a question of the call itself."""

    def apply_decision(self, decision: Decision) -> None:
        by, word = str(decision["by"]), str(decision["decision"])
        if _answered_request_kind(decision) not in ("", "approval"):
            self.answer = decision
        elif by == "person":
            self._apply_person_decision(decision, word)
        elif word == "deny" or (word in ("block", "stop") and decision.get("event") == "BeforeTool"):
            self.follow_event("fail", decision)
        elif word == "ask":
            self.asker = decision
        elif by == "policy" and self.permit.get("by") != "person":
            self.permit = decision

    def _apply_person_decision(self, decision: Decision, choice: str) -> None:
        self.follow_event("ask" if self.at == "validating" else "ask_again", self.asker)
        self.permit = decision
        if choice in ("reject", "cancel", "modify"):
            self.follow_event({"reject": "fail"}.get(choice, choice), decision)

    def apply_result(self, call: Call) -> None:
        """From the last decision to the result. What failed before it was permitted never ran."""
        if self.at in ("success", "error", "cancelled"):
            return
        ran = call.ms is not None or call.state == "intent" or call.status == "success"
        if ran or self.answer or self.permit.get("by") == "person":
            self.follow_event("schedule", self.permit)
            self.follow_event("execute")
        if call.state != "intent":
            self.follow_event(
                {"success": "succeed", "error": "fail", "cancelled": "cancel"}[str(call.status)], self.answer
            )


def _answered_request_kind(decision: Decision) -> str:
    """What the request was for that a person's decision answers (`ApprovalRequest.what`); empty: no person's."""
    return "".join(str(decision.get("request", "")).rsplit(":", 2)[-2:-1])


def read_approval_mode_lifecycle(home: Path, run: str) -> Lifecycle:
    """The way of a run's approval mode. Raises `UserError` for a run without one."""
    points = list_root_checkpoints(home, run)
    # What a prompt gives a run is in the checkpoint after the input's.
    begun = {point.step + 1 for point in points if point.source == "input"}
    given = [(p.step, approval_mode_state(p.values) or "default") for p in points if p.step in begun]
    rows = [row for row in queries.list_steps(home, run) if (row["reason"] or "").startswith(MOVES_MARK)]
    noted = [(row["root_step"], row["reason"]) for row in rows if "|" not in row["namespace"]]
    if not given:
        raise UserError(f"Run {run!r} has not begun. Resume it with: interlock resume {run}")
    walk = _ChartWalk(ApprovalModeChart, given[0][1])
    reviews = _plan_review_decisions(home, run)
    told = [*((at, 0, mode) for at, mode in given), *((at, 1, text) for at, text in noted)]
    for _, _, text in sorted(told, key=lambda one: one[:2]):
        if text.startswith(MOVES_MARK):
            for event in text.removeprefix(MOVES_MARK).split(", "):
                walk.follow_event(event, next(reviews, None) if walk.at == "plan.review" else None)
        elif text.partition(".")[0] != walk.at.partition(".")[0]:
            walk.follow_event(f"use_{text.partition('.')[0]}", why="switched by a person")
    return walk.to_lifecycle("now")


def _plan_review_decisions(home: Path, run: str) -> Iterator[Decision]:
    """What people decided about plans, oldest first."""
    made = sorted(
        (c for c in list_calls(home, run) if c.tool == "exit_plan_mode"), key=lambda c: c.ended or 0
    )
    yield from (d for call in made for d in call.decided[-1:] if d["by"] == "person")
