"""routes: where a sub-agent goes."""

from typing import Literal

from typing_extensions import TypedDict


class LabelIn(TypedDict, total=False):
    label: str


class TurnIn(TypedDict, total=False):
    turn_status: str
    error: dict[str, str]


def after_check_end(state: LabelIn) -> Literal["turn", "time or turns are up"]:
    return "turn" if state["label"] == "turn" else "time or turns are up"


def after_turn(state: TurnIn) -> Literal["calls", "no call", "first loop", "failed"]:
    """A turn that ran out of time is no failure: what was found is still wanted."""
    if state["turn_status"] == "calls":
        return "calls"
    if state["turn_status"] == "loop_nudge":
        return "first loop"
    timed_out = (state.get("error") or {}).get("type") == "timeout"
    return "no call" if state["turn_status"] == "ok" or timed_out else "failed"


def after_check_result(state: LabelIn) -> Literal["complete", "open questions", "go on", "aborted"]:
    label = state["label"]
    if label == "complete":
        return "complete"
    if label == "open questions":
        return "open questions"
    return "aborted" if label == "aborted" else "go on"


def after_recover(state: LabelIn) -> Literal["last chance", "give up"]:
    return "last chance" if state["label"] == "last chance" else "give up"
