"""routes: where `plan` goes."""

from typing import Literal

from typing_extensions import TypedDict

from interlock.state.hooks import is_hooked
from interlock.state.plan import REMINDERS


class AfterOpenPlanIn(TypedDict, total=False):
    hooked: str


class AfterTurnIn(TypedDict, total=False):
    turn_status: str


class AfterToolsIn(TypedDict, total=False):
    stop: str
    approved_plan: bool
    plan_verdict: str


class AfterRemindIn(TypedDict, total=False):
    reminders: int


def after_open_plan(state: AfterOpenPlanIn) -> Literal["plain", "hooked"]:
    return "hooked" if is_hooked(state.get("hooked", ""), "BeforeAgent") else "plain"


def after_turn(state: AfterTurnIn) -> Literal["calls", "no calls", "first loop", "ended"]:
    status = state["turn_status"]
    if status == "calls":
        return "calls"
    return "no calls" if status == "ok" else "first loop" if status == "loop_nudge" else "ended"


def after_tools(state: AfterToolsIn) -> Literal["results", "approved", "rejected or stopped"]:
    if state["approved_plan"]:
        return "approved"
    ended = state.get("stop") or state["plan_verdict"] == "reject_silently"
    return "rejected or stopped" if ended else "results"


def after_remind(state: AfterRemindIn) -> Literal["once more", "give up"]:
    return "once more" if state["reminders"] <= REMINDERS else "give up"
