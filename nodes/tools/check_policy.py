"""check_policy: may this call run, must a person be asked, or is it denied?"""

from langgraph.runtime import Runtime
from typing_extensions import TypedDict

from interlock.nodes.tools._requests import put_request
from interlock.prompts import load
from interlock.state.calls import ApprovalRequest, CallKey, CallView, Preview, Risk, Verdict, failure
from interlock.state.charts import ToolCallChart, step
from interlock.state.deps import Deps
from interlock.state.edit import EDIT_TOOL
from interlock.state.errors import RunError
from interlock.state.toolset import ToolInfo

_STALE = "It was asked before; the files have changed since, so the preview is new."
_CORRECTED = "What the edit looked for isn't in the file; a helper model corrected it, as the preview shows."


class CheckPolicyIn(TypedDict, total=False):
    message: str
    index: int
    attempt: int
    approval_mode: str
    asks: int
    by_person: bool
    edit_status: str
    status: str
    label: str


class CheckPolicyOut(TypedDict, total=False):
    asks: int
    approval: str
    status: str
    label: str


async def check_policy(state: CheckPolicyIn, runtime: Runtime[Deps]) -> CheckPolicyOut:
    """Deny answers the call, allow makes it ready, ask writes the request that `await_approval` stops for."""
    deps = runtime.context
    key = CallKey(message=state["message"], index=state["index"], attempt=state["attempt"])
    call = deps.journal.call(key)
    info = _info(deps, call)
    verdict = deps.policy.check(call, info.risk, state["approval_mode"], deps.approvals.session_rules())
    if verdict.decision == "deny":
        text = load("run/call_denied").text(tool=call.name, reason=verdict.deny_message or verdict.reason)
        deps.journal.finish(key, call, failure("policy_violation", text, rule=verdict.rule))
        return {"label": "deny", "status": step(ToolCallChart, state["status"], "fail")}
    # What a person wrote was approved by writing it.
    allowed = verdict.decision == "allow" or state["by_person"]
    if allowed and (info.name != EDIT_TOOL or state["by_person"]):
        return {"label": "allow"}
    earlier = _earlier(deps, state)
    preview = await deps.toolset.preview(call, earlier)
    foreseen = not any(_unforeseen(deps, other) for other in earlier)
    if preview.code == "no_occurrence" and foreseen and not state.get("edit_status"):
        return {"label": "no match"}
    if allowed:
        return {"label": "allow"}
    if preview.problem is not None:
        return _impossible(deps, state, call, preview, foreseen)
    asks = state["asks"] + 1
    note = _STALE if state["asks"] else _CORRECTED if state.get("edit_status") else None
    request = _request(deps, f"{key}:approval:{asks}", call, info.risk, verdict, preview, note)
    put_request(runtime, request)
    event = "ask_again" if state["asks"] and state["status"] == "awaiting_approval" else "ask"
    return {
        "label": "ask",
        "asks": asks,
        "approval": request.key,
        "status": step(ToolCallChart, state["status"], event),
    }


def _unforeseen(deps: Deps, call: CallView) -> bool:
    """A command may change any file before a later call of its batch has its turn."""
    info = deps.toolset.info(call.name)
    return info is not None and info.effect == "other"


def _impossible(
    deps: Deps, state: CheckPolicyIn, call: CallView, preview: Preview, foreseen: bool
) -> CheckPolicyOut:
    """Nobody can be asked about what can't be shown, and what nobody was asked about isn't run, even if it could be

    once earlier calls of the batch are done.
    """
    key = CallKey(message=state["message"], index=state["index"], attempt=state["attempt"])
    later = "" if foreseen else " " + load("run/call_too_early").text()
    text = f"{preview.problem}{later}"
    deps.journal.finish(key, call, failure(preview.code or "not_possible", text))
    return {"label": "deny", "status": step(ToolCallChart, state["status"], "fail")}


def _info(deps: Deps, call: CallView) -> ToolInfo:
    info = deps.toolset.info(call.name)
    if info is None:
        raise RunError(
            f"Tool {call.name!r} was there when the call was resolved, and is gone. Resume when it is back."
        )
    return info


def _earlier(deps: Deps, state: CheckPolicyIn) -> list[CallView]:
    """The calls before this one in its batch: an edit is previewed on their result."""
    return [
        deps.journal.call(CallKey(message=state["message"], index=index)) for index in range(state["index"])
    ]


def _request(
    deps: Deps, key: str, call: CallView, risk: Risk, verdict: Verdict, preview: Preview, note: str | None
) -> ApprovalRequest:
    return ApprovalRequest(
        key=key,
        kind="approval",
        call=call,
        reason=verdict.reason,
        preview=preview.text,
        parts=verdict.parts,
        files=preview.files,
        choices=deps.policy.choices(call, risk, verdict),
        note=note,
    )
