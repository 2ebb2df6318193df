"""check_policy: may this call run, must a person be asked, or is it denied?"""

from langgraph.runtime import Runtime
from typing_extensions import TypedDict

from interlock.nodes.tools._decided import note
from interlock.nodes.tools._subject import earlier_calls, info_of, is_foreseen
from interlock.prompts import load
from interlock.state.calls import CallKey, CallView, Verdict, failure
from interlock.state.charts import ToolCallChart, step
from interlock.state.decided import Decided
from interlock.state.deps import Deps
from interlock.state.edit import EDIT_TOOL


class CheckPolicyIn(TypedDict, total=False):
    message: str
    index: int
    attempt: int
    approval_mode: str
    by_person: bool
    hook_reason: str
    edit_status: str
    status: str


class CheckPolicyOut(TypedDict, total=False):
    must_ask: bool
    status: str
    label: str


async def check_policy(state: CheckPolicyIn, runtime: Runtime[Deps]) -> CheckPolicyOut:
    """Deny answers the call. Else hooks have their say first, and then perhaps a person."""
    deps = runtime.context
    key = CallKey(message=state["message"], index=state["index"], attempt=state["attempt"])
    call = deps.journal.call(key)
    info = info_of(deps, call)
    verdict = await deps.policy.decide(
        call, info.risk, state["approval_mode"], deps.approvals.session_rules()
    )
    note(runtime, key, _decided(verdict, state["approval_mode"]))
    if verdict.decision == "deny":
        why = verdict.deny_message or verdict.reason
        text = load("run/call_denied").text(tool=call.name, reason=why)
        deps.journal.finish(key, call, failure("policy_violation", text, rule=verdict.rule, why=why))
        return {"label": "deny", "status": step(ToolCallChart, state["status"], "fail")}
    # What a person wrote was approved by writing it.
    must_ask = (verdict.decision == "ask" or bool(state.get("hook_reason"))) and not state["by_person"]
    if info.name == EDIT_TOOL and not state["by_person"] and await _misses(deps, state, call):
        return {"label": "no match", "must_ask": must_ask}
    return {"label": "pass", "must_ask": must_ask}


async def _misses(deps: Deps, state: CheckPolicyIn, call: CallView) -> bool:
    """The old string isn't in the file, and nobody tried yet to correct it."""
    earlier = earlier_calls(deps, state["message"], state["index"])
    if state.get("edit_status") or not is_foreseen(deps, earlier):
        return False
    return (await deps.toolset.preview(call, earlier)).code == "no_occurrence"


def _decided(verdict: Verdict, mode: str) -> Decided:
    return Decided(
        by="policy",
        decision=verdict.decision,
        rule=verdict.rule,
        reason=verdict.reason,
        parts=verdict.parts,
        session=verdict.session,
        mode=mode,
    )
