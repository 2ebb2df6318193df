"""routes: which way a run takes around and through its session's hooks."""

from typing import Literal

from typing_extensions import TypedDict

from interlock.state.hooks import is_hooked


class HookedIn(TypedDict, total=False):
    hooked: str


class AskedIn(TypedDict, total=False):
    session_event: str


def by_session_start(state: HookedIn) -> Literal["", "session"]:
    return "session" if is_hooked(state.get("hooked", ""), "SessionStart") else ""


def by_session_end(state: HookedIn) -> Literal["", "session"]:
    return "session" if is_hooked(state.get("hooked", ""), "SessionEnd") else ""


def after_session_start(state: AskedIn) -> Literal["", "unknown"]:
    return "unknown" if state.get("session_event") else ""


def after_session_end(state: AskedIn) -> Literal["", "unknown"]:
    return "unknown" if state.get("session_event") else ""


def after_await_session(state: AskedIn) -> Literal["start", "end"]:
    return "start" if state["session_event"] == "SessionStart" else "end"
