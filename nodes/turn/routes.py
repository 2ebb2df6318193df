"""routes: where a turn goes."""

from typing import Literal

from typing_extensions import TypedDict


class StatusIn(TypedDict, total=False):
    turn_status: str


def after_check_limits(state: StatusIn) -> Literal["ok", "limit"]:
    return "limit" if state["turn_status"] else "ok"


def after_check_context(state: StatusIn) -> Literal["fits", "overflow"]:
    return "overflow" if state["turn_status"] else "fits"


def after_check_stream(state: StatusIn) -> Literal["again", "end"]:
    """`again` for an invalid answer, and for one that the user cut short: a resumed run asks once more."""
    return "end" if state["turn_status"] else "again"
