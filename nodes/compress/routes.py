"""routes: where a compression goes."""

from typing import Literal

from typing_extensions import TypedDict


class LabelIn(TypedDict, total=False):
    label: str


def after_check_threshold(state: LabelIn) -> Literal["due", "below"]:
    return "due" if state["label"] == "due" else "below"


def after_truncate_old_outputs(state: LabelIn) -> Literal["attempt", "failed before"]:
    return "attempt" if state["label"] == "attempt" else "failed before"


def after_split(state: LabelIn) -> Literal["found", "nothing to drop"]:
    return "found" if state["label"] == "found" else "nothing to drop"


def after_summarise(state: LabelIn) -> Literal["answered", "failed", "cancelled"]:
    """`cancelled`: a resumed run asks once more."""
    label = state["label"]
    return "answered" if label == "answered" else "failed" if label == "failed" else "cancelled"


def after_verify(state: LabelIn) -> Literal["checked or not", "cancelled"]:
    return "cancelled" if state["label"] == "cancelled" else "checked or not"
