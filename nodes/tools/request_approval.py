"""request_approval: write the request that a person decides on, of the arguments that would run."""

from langgraph.runtime import Runtime
from typing_extensions import TypedDict

from interlock.nodes.tools._requests import put_request
from interlock.nodes.tools._subject import earlier_calls, info_of, is_foreseen
from interlock.prompts import load
from interlock.state.calls import ApprovalRequest, CallKey, CallView, Preview, Verdict, failure
from interlock.state.charts import ToolCallChart, step
from interlock.state.deps import Deps

_STALE = "It was asked before; the files have changed since, so the preview is new."
_CORRECTED = "What the edit looked for isn't in the file; a helper model corrected it, as the preview shows."
_BY_HOOK = "A hook changed the arguments that the model gave; the preview is of the changed ones."


class RequestApprovalIn(TypedDict, total=False):
    message: str
    index: int
    attempt: int
    approval_mode: str
    asks: int
    by_hook: bool
    hook_reason: str
    edit_status: str
    status: str


class RequestApprovalOut(TypedDict, total=False):
    asks: int
    approval: str
    status: str
    label: str


async def request_approval(state: RequestApprovalIn, runtime: Runtime[Deps]) -> RequestApprovalOut:
    """Its reason names the rule, the heuristic or the hook that asks."""
    deps = runtime.context
    key = CallKey(message=state["message"], index=state["index"], attempt=state["attempt"])
    call = deps.journal.call(key)
    risk = info_of(deps, call).risk
    verdict = await deps.policy.decide(call, risk, state["approval_mode"], deps.approvals.session_rules())
    earlier = earlier_calls(deps, key.message, key.index)
    preview = await deps.toolset.preview(call, earlier)
    if preview.problem is not None:
        _impossible(deps, key, call, preview, is_foreseen(deps, earlier))
        return {"label": "impossible", "status": step(ToolCallChart, state["status"], "fail")}
    asks = state["asks"] + 1
    request = ApprovalRequest(
        key=f"{key}:approval:{asks}",
        kind="approval",
        call=call,
        reason=_reason(state, verdict),
        preview=preview.text,
        parts=verdict.parts,
        files=preview.files,
        choices=deps.policy.choices(call, risk, verdict),
        note=_note(state),
    )
    put_request(runtime, request)
    event = "ask_again" if state["asks"] and state["status"] == "awaiting_approval" else "ask"
    status = step(ToolCallChart, state["status"], event)
    return {"label": "asked", "asks": asks, "approval": request.key, "status": status}


def _impossible(deps: Deps, key: CallKey, call: CallView, preview: Preview, foreseen: bool) -> None:
    """Nobody can be asked about what can't be shown, and what nobody was asked about isn't run, even if it could be

    once earlier calls of the batch are done.
    """
    later = "" if foreseen else " " + load("run/call_too_early").text()
    deps.journal.finish(key, call, failure(preview.code or "not_possible", f"{preview.problem}{later}"))


def _reason(state: RequestApprovalIn, verdict: Verdict) -> str:
    by_policy = verdict.reason if verdict.decision == "ask" else ""
    return " ".join(part for part in (state.get("hook_reason"), by_policy) if part) or verdict.reason


def _note(state: RequestApprovalIn) -> str | None:
    if state["asks"] and state["status"] == "awaiting_approval":
        return _STALE
    if state.get("by_hook"):
        return _BY_HOOK
    return _CORRECTED if state.get("edit_status") else None
