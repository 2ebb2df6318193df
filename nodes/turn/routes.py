"""routes: where a turn goes."""

from typing import Literal

from typing_extensions import TypedDict

from interlock.nodes._hooked import HookWaits, waits
from interlock.state.hooks import HookEvent, is_hooked
from interlock.state.loop_check import FIRST_CHECK


class StatusIn(TypedDict, total=False):
    turn_status: str


class AfterLimitsIn(StatusIn, total=False):
    long: bool


class HookedIn(StatusIn, total=False):
    hooked: str


class AfterHookIn(HookedIn, HookWaits, total=False):
    pass


class BeforeModelIn(HookedIn, total=False):
    turn_no: int
    loop_next: int
    loop_found: dict[str, str]
    sticky_model: str


class AfterStreamIn(HookedIn, total=False):
    failed_model: str
    loop_found: dict[str, str]


def after_check_limits(state: AfterLimitsIn) -> Literal["short", "long", "limit"]:
    if state["turn_status"]:
        return "limit"
    return "long" if state["long"] else "short"


def after_check_context(
    state: BeforeModelIn,
) -> Literal["overflow", "look due", "sticky", "hooked", "unrouted"]:
    if state["turn_status"]:
        return "overflow"
    if state["turn_no"] >= (state.get("loop_next") or FIRST_CHECK):
        return "look due"
    return _routed(state)


def after_loop_check(state: BeforeModelIn) -> Literal["loop", "sticky", "hooked", "unrouted"]:
    return "loop" if state["loop_found"] else _routed(state)


def _routed(state: BeforeModelIn) -> Literal["sticky", "hooked", "unrouted"]:
    if not state.get("sticky_model"):
        return "unrouted"
    return "hooked" if _asks_before(state) else "sticky"


def after_use_model(state: HookedIn) -> Literal["usable", "hooked", "none left"]:
    if state["turn_status"]:
        return "none left"
    return "hooked" if _asks_before(state) else "usable"


def _asks_before(state: HookedIn) -> bool:
    """Two events stand before the request, of which the first node leads to the second."""
    return _is_hooked(state, "BeforeModel") or _is_hooked(state, "BeforeToolSelection")


def _is_hooked(state: HookedIn, event: HookEvent) -> bool:
    return is_hooked(state.get("hooked", ""), event)


def after_before_model(state: AfterHookIn) -> Literal["ask", "choose tools", "ended", "unknown", "cancelled"]:
    """`ended` also by an answer that a hook gave in the model's place."""
    if waiting := waits(state):
        return waiting
    if state["turn_status"]:
        return "ended"
    return "choose tools" if _is_hooked(state, "BeforeToolSelection") else "ask"


def after_before_tool_selection(state: AfterHookIn) -> Literal["ask", "ended", "unknown", "cancelled"]:
    if waiting := waits(state):
        return waiting
    return "ended" if state["turn_status"] else "ask"


def after_check_stream(state: AfterStreamIn) -> Literal["again", "unavailable", "loop", "whole", "end"]:
    """`again` for an invalid answer, and for one that the user cut short: a resumed run asks once more."""
    if state["turn_status"]:
        whole = state["turn_status"] in ("ok", "calls")
        return "whole" if whole and _is_hooked(state, "AfterModel") else "end"
    if state.get("failed_model"):
        return "unavailable"
    return "loop" if state.get("loop_found") else "again"


def after_after_model(state: AfterHookIn) -> Literal["end", "unknown", "cancelled"]:
    return waits(state) or "end"


def after_await_hook(state: AfterHookIn) -> Literal["BeforeModel", "BeforeToolSelection", "AfterModel"]:
    event = state["hook_event"]
    if event == "BeforeModel":
        return "BeforeModel"
    return "BeforeToolSelection" if event == "BeforeToolSelection" else "AfterModel"
