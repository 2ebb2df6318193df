"""routes: where a compression goes."""

from typing import Literal

from typing_extensions import TypedDict

from interlock.nodes._hooked import HookWaits, waits
from interlock.nodes.compress._sizes import AttemptIn, is_attempt
from interlock.state.hooks import is_hooked


class LabelIn(TypedDict, total=False):
    label: str


class AfterCheckThresholdIn(AttemptIn, total=False):
    label: str
    hooked: str


class AfterPreCompressIn(LabelIn, HookWaits, total=False):
    pass


def after_check_threshold(state: AfterCheckThresholdIn) -> Literal["due", "hooked", "below"]:
    """Hooks are asked about an attempt at a snapshot; older outputs are shortened without."""
    if state["label"] != "due":
        return "below"
    return "hooked" if is_hooked(state.get("hooked", ""), "PreCompress") and is_attempt(state) else "due"


def after_pre_compress(state: AfterPreCompressIn) -> Literal["go on", "put off", "unknown", "cancelled"]:
    if waiting := waits(state):
        return waiting
    return "go on" if state["label"] == "go on" else "put off"


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
