"""routes: where a batch and its calls go."""

from collections.abc import Sequence
from typing import Literal

from typing_extensions import TypedDict

from interlock.nodes.tools._verdicts import approval_of, attempt_of
from interlock.state.tools import DecideSend, ExecuteSend, Verdicts


class LabelIn(TypedDict, total=False):
    label: str


class KindIn(TypedDict, total=False):
    kind: str


class BatchIn(TypedDict, total=False):
    message: str
    count: int
    approval_mode: str


class GroupIn(TypedDict, total=False):
    message: str
    group: list[int]
    kinds: dict[str, str]
    decided: Verdicts
    approval_mode: str


class HeadIn(TypedDict, total=False):
    head: str
    message: str


def each_call(state: BatchIn) -> Sequence[DecideSend]:
    """Every call is decided by itself, all at once: their questions are pending together."""
    mode = state["approval_mode"]
    return [{"message": state["message"], "index": i, "approval_mode": mode} for i in range(state["count"])]


def each_of_group(state: GroupIn) -> Sequence[ExecuteSend]:
    sends: list[ExecuteSend] = []
    for index in state["group"]:
        verdict = state["decided"][str(index)]
        sends.append(
            {
                "message": state["message"],
                "index": index,
                "attempt": attempt_of(verdict),
                "approval": approval_of(verdict),
                "kind": state["kinds"][str(index)],
                "approval_mode": state["approval_mode"],
            }
        )
    return sends


def after_collect(state: HeadIn) -> Literal["groups left", "done"]:
    """The head moves when the answers are in."""
    return "groups left" if state["head"] == state["message"] else "done"


def after_resolve(state: LabelIn) -> Literal["known", "unknown"]:
    return "known" if state["label"] == "known" else "unknown"


def after_validate(state: LabelIn) -> Literal["valid", "invalid"]:
    return "valid" if state["label"] == "valid" else "invalid"


def after_check_policy(state: LabelIn) -> Literal["allow", "ask", "deny", "no match"]:
    label = state["label"]
    if label == "no match":
        return "no match"
    return "allow" if label == "allow" else "ask" if label == "ask" else "deny"


def after_take_edit(state: LabelIn) -> Literal["corrected", "answered"]:
    return "corrected" if state["label"] == "corrected" else "answered"


def after_apply_decision(state: LabelIn) -> Literal["proceed", "modify", "changed since", "reject or cancel"]:
    label = state["label"]
    if label == "proceed":
        return "proceed"
    if label == "modify":
        return "modify"
    return "changed since" if label == "stale" else "reject or cancel"


def by_kind(state: KindIn) -> Literal["tool", "question", "agent", "review"]:
    kind = state["kind"]
    if kind == "question":
        return "question"
    return "agent" if kind == "agent" else "review" if kind == "review" else "tool"


def after_ask_review(state: LabelIn) -> Literal["asked", "no plan"]:
    return "asked" if state["label"] == "asked" else "no plan"


def after_take_review(state: LabelIn) -> Literal["decided", "changed since"]:
    return "decided" if state["label"] == "decided" else "changed since"


def after_run_tool(state: LabelIn) -> Literal["done", "long output", "unknown outcome"]:
    label = state["label"]
    return "done" if label == "done" else "long output" if label == "long" else "unknown outcome"


def after_apply_outcome(state: LabelIn) -> Literal["redo", "skip"]:
    return "redo" if state["label"] == "redo" else "skip"
