"""routes: where an output goes."""

from typing import Literal

from typing_extensions import TypedDict


class LabelIn(TypedDict, total=False):
    label: str


def after_measure(state: LabelIn) -> Literal["long", "short"]:
    return "long" if state["label"] == "long" else "short"


def after_save(state: LabelIn) -> Literal["summarize", "truncate"]:
    return "summarize" if state["label"] == "summarize" else "truncate"


def after_summarize(state: LabelIn) -> Literal["answered or failed", "cancelled"]:
    """`cancelled`: a resumed run asks once more."""
    return "cancelled" if state["label"] == "cancelled" else "answered or failed"


def after_check_summary(state: LabelIn) -> Literal["good", "failed"]:
    return "good" if state["label"] == "good" else "failed"
