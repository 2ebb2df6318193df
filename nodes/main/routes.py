"""routes: where `main` goes."""

from typing import Literal

from typing_extensions import TypedDict


class AfterTurnIn(TypedDict, total=False):
    turn_status: str
    next_speaker_check: bool


class AfterToolsIn(TypedDict, total=False):
    stop: str


class AfterNextSpeakerIn(TypedDict, total=False):
    next_speaker: str


def after_turn(state: AfterTurnIn) -> Literal["calls", "no calls", "first loop", "ended"]:
    status = state["turn_status"]
    if status == "ok" and state.get("next_speaker_check"):
        return "no calls"
    return "calls" if status == "calls" else "first loop" if status == "loop_nudge" else "ended"


def after_tools(state: AfterToolsIn) -> Literal["results", "stop"]:
    return "stop" if state.get("stop") else "results"


def after_next_speaker(state: AfterNextSpeakerIn) -> Literal["model", "user or nobody"]:
    return "model" if state["next_speaker"] == "model" else "user or nobody"
