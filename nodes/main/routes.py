"""routes: where `main` goes."""

from typing import Literal

from typing_extensions import TypedDict

from interlock.nodes._hooked import HookWaits, waits
from interlock.state.hooks import is_hooked


class AfterOpenPromptIn(TypedDict, total=False):
    hooked: str
    asked: str
    hook_stage: str


class AfterHookIn(HookWaits, total=False):
    turn_status: str


class AfterTurnIn(TypedDict, total=False):
    hooked: str
    turn_status: str
    next_speaker_check: bool


class AfterToolsIn(TypedDict, total=False):
    stop: str


class AfterNextSpeakerIn(TypedDict, total=False):
    hooked: str
    next_speaker: str


class AfterAwaitHookIn(TypedDict, total=False):
    hook_event: str


def after_open_prompt(state: AfterOpenPromptIn) -> Literal["plain", "hooked", "answered"]:
    """A prompt that has passed isn't asked about again; one whose answer was refused has only the answer to pass."""
    stage = state.get("hook_stage")
    if stage == "answered":
        return "answered"
    waits = not stage and state.get("asked") and is_hooked(state.get("hooked", ""), "BeforeAgent")
    return "hooked" if waits else "plain"


def after_before_agent(state: AfterHookIn) -> Literal["passed", "ended", "unknown", "cancelled"]:
    if waiting := waits(state):
        return waiting
    return "ended" if state["turn_status"] else "passed"


def after_turn(state: AfterTurnIn) -> Literal["calls", "no calls", "answered", "first loop", "ended"]:
    status = state["turn_status"]
    if status == "ok" and state.get("next_speaker_check"):
        return "no calls"
    if status == "ok" and is_hooked(state.get("hooked", ""), "AfterAgent"):
        return "answered"
    return "calls" if status == "calls" else "first loop" if status == "loop_nudge" else "ended"


def after_tools(state: AfterToolsIn) -> Literal["results", "stop"]:
    return "stop" if state.get("stop") else "results"


def after_next_speaker(state: AfterNextSpeakerIn) -> Literal["model", "answered", "user or nobody"]:
    if state["next_speaker"] == "model":
        return "model"
    return "answered" if is_hooked(state.get("hooked", ""), "AfterAgent") else "user or nobody"


def after_after_agent(state: AfterHookIn) -> Literal["feedback", "ended", "unknown", "cancelled"]:
    if waiting := waits(state):
        return waiting
    return "ended" if state["turn_status"] else "feedback"


def after_await_hook(state: AfterAwaitHookIn) -> Literal["BeforeAgent", "AfterAgent"]:
    return "BeforeAgent" if state["hook_event"] == "BeforeAgent" else "AfterAgent"
