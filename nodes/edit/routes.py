"""routes: where an edit goes."""

from typing import Literal

from typing_extensions import TypedDict


class LabelIn(TypedDict, total=False):
    label: str


def after_read(state: LabelIn) -> Literal["create", "match", "refused"]:
    label = state["label"]
    return "create" if label == "create" else "match" if label == "match" else "refused"


def after_match(state: LabelIn) -> Literal["right count", "wrong count", "none"]:
    label = state["label"]
    return "right count" if label == "right count" else "none" if label == "none" else "wrong count"


def after_repair(state: LabelIn) -> Literal["found", "not found", "not for a model"]:
    label = state["label"]
    return "found" if label == "found" else "not found" if label == "not found" else "not for a model"


def after_correct_target(state: LabelIn) -> Literal["found", "not found"]:
    return "found" if state["label"] == "found" else "not found"


def after_check_external_change(state: LabelIn) -> Literal["changed", "same"]:
    return "same" if state["label"] == "same" else "changed"


def after_fix_edit(state: LabelIn) -> Literal["no changes needed", "changed strings", "no answer"]:
    label = state["label"]
    if label == "no changes needed":
        return "no changes needed"
    return "changed strings" if label == "changed strings" else "no answer"


def after_confirm_present(state: LabelIn) -> Literal["present", "absent"]:
    return "present" if state["label"] == "present" else "absent"


def after_match_again(state: LabelIn) -> Literal["found", "not found"]:
    return "found" if state["label"] == "found" else "not found"


def after_apply(state: LabelIn) -> Literal["write", "keep", "refused"]:
    label = state["label"]
    return "write" if label == "write" else "keep" if label == "keep" else "refused"
