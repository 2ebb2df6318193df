"""routes: where a batch and its calls go."""

from collections.abc import Sequence
from typing import Literal

from typing_extensions import TypedDict

from interlock.nodes._hooked import HookWaits, waits
from interlock.nodes.tools._verdicts import approval_of, attempt_of, is_changed
from interlock.state.hooks import is_hooked
from interlock.state.tools import DecideSend, ExecuteSend, Verdicts


class LabelIn(TypedDict, total=False):
    label: str


class KindIn(TypedDict, total=False):
    kind: str


class PolicyIn(TypedDict, total=False):
    label: str
    hooked: str
    attempt: int
    hook_attempt: int
    must_ask: bool


class AfterIn(HookWaits, total=False):
    label: str


class HookedIn(AfterIn, total=False):
    must_ask: bool


class RequestIn(TypedDict, total=False):
    label: str
    hooked: str


class ResultIn(RequestIn, total=False):
    status: str


class ApprovalIn(TypedDict, total=False):
    approval: str


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
                "by_hook": is_changed(verdict),
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


def after_check_policy(state: PolicyIn) -> Literal["allow", "ask", "hooks", "deny", "no match"]:
    """Hooks are asked about every attempt once, and never about what they made themselves."""
    label = state["label"]
    if label in ("no match", "deny"):
        return "no match" if label == "no match" else "deny"
    if is_hooked(state.get("hooked", ""), "BeforeTool") and state["hook_attempt"] != state["attempt"]:
        return "hooks"
    return "ask" if state["must_ask"] else "allow"


def after_before_tool(
    state: HookedIn,
) -> Literal["allow", "ask", "changed", "blocked or stopped", "unknown", "cancelled"]:
    if open_ := waits(state):
        return open_
    if state["label"] == "blocked":
        return "blocked or stopped"
    return "changed" if state["label"] == "changed" else "ask" if state["must_ask"] else "allow"


def after_request(state: RequestIn) -> Literal["asked", "notify", "impossible"]:
    if state["label"] == "impossible":
        return "impossible"
    return after_ask(state)


def after_ask(state: RequestIn) -> Literal["asked", "notify"]:
    return "notify" if is_hooked(state.get("hooked", ""), "Notification") else "asked"


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


def after_ask_review(state: RequestIn) -> Literal["asked", "notify", "no plan"]:
    return after_ask(state) if state["label"] == "asked" else "no plan"


def after_take_review(state: ResultIn) -> Literal["decided", "hooks", "changed since"]:
    if state["label"] == "changed since":
        return "changed since"
    return "hooks" if _is_for_hooks(state) else "decided"


def after_result(state: ResultIn) -> Literal["done", "hooks"]:
    """A question that nobody answers has no result either."""
    return "hooks" if _is_for_hooks(state) and state.get("status") != "error" else "done"


def after_run_tool(state: ResultIn) -> Literal["done", "long output", "hooks", "unknown outcome"]:
    label = state["label"]
    if label == "unknown":
        return "unknown outcome"
    if _is_for_hooks(state):
        return "hooks"
    return "long output" if label == "long" else "done"


def after_after_tool(state: AfterIn) -> Literal["done", "long output", "unknown", "cancelled"]:
    if open_ := waits(state):
        return open_
    return "long output" if state["label"] == "long" else "done"


def _is_for_hooks(state: ResultIn) -> bool:
    """A call that was stopped while it ran has no result to look at."""
    return is_hooked(state.get("hooked", ""), "AfterTool") and state.get("status") != "cancelled"


def by_request(state: ApprovalIn) -> Literal["outcome", "question", "review"]:
    """What a request is about stands in its key."""
    kind = state["approval"].rsplit(":", 2)[1]
    return "question" if kind == "question" else "review" if kind == "review" else "outcome"


def after_apply_outcome(state: LabelIn) -> Literal["redo", "skip"]:
    return "redo" if state["label"] == "redo" else "skip"
