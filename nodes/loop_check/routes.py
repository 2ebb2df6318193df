"""routes: where a check goes."""

from typing import Literal

from typing_extensions import TypedDict


class AfterScanIn(TypedDict, total=False):
    check_due: bool


class AfterAskModelIn(TypedDict, total=False):
    double_check: bool


def after_scan(state: AfterScanIn) -> Literal["look due", "over"]:
    return "look due" if state["check_due"] else "over"


def after_ask_model(state: AfterAskModelIn) -> Literal["suspicious", "judged"]:
    return "suspicious" if state["double_check"] else "judged"
