"""routes: where a turn goes."""

from typing import Literal

from typing_extensions import TypedDict

from interlock.state.loop_check import FIRST_CHECK


class StatusIn(TypedDict, total=False):
    turn_status: str


class AfterLimitsIn(StatusIn, total=False):
    long: bool


class BeforeModelIn(StatusIn, total=False):
    turn_no: int
    loop_next: int
    loop_found: dict[str, str]
    sticky_model: str


class AfterStreamIn(StatusIn, total=False):
    failed_model: str
    loop_found: dict[str, str]


def after_check_limits(state: AfterLimitsIn) -> Literal["short", "long", "limit"]:
    if state["turn_status"]:
        return "limit"
    return "long" if state["long"] else "short"


def after_check_context(state: BeforeModelIn) -> Literal["overflow", "look due", "sticky", "unrouted"]:
    if state["turn_status"]:
        return "overflow"
    if state["turn_no"] >= (state.get("loop_next") or FIRST_CHECK):
        return "look due"
    return _routed(state)


def after_loop_check(state: BeforeModelIn) -> Literal["loop", "sticky", "unrouted"]:
    return "loop" if state["loop_found"] else _routed(state)


def _routed(state: BeforeModelIn) -> Literal["sticky", "unrouted"]:
    return "sticky" if state.get("sticky_model") else "unrouted"


def after_use_model(state: StatusIn) -> Literal["usable", "none left"]:
    return "none left" if state["turn_status"] else "usable"


def after_check_stream(state: AfterStreamIn) -> Literal["again", "unavailable", "loop", "end"]:
    """`again` for an invalid answer, and for one that the user cut short: a resumed run asks once more."""
    if state["turn_status"]:
        return "end"
    if state.get("failed_model"):
        return "unavailable"
    return "loop" if state.get("loop_found") else "again"
