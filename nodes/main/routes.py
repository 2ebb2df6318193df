"""routes: where `main` goes."""

from typing import Literal

from typing_extensions import TypedDict


class AfterTurnIn(TypedDict, total=False):
    turn_status: str


class AfterToolsIn(TypedDict, total=False):
    stop: str


def after_turn(state: AfterTurnIn) -> Literal["calls", "ended"]:
    return "calls" if state["turn_status"] == "calls" else "ended"


def after_tools(state: AfterToolsIn) -> Literal["results", "stop"]:
    return "stop" if state.get("stop") else "results"
