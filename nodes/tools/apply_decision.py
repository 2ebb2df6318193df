"""apply_decision: do what the person said of a call."""

import asyncio
from datetime import UTC, datetime

from langgraph.runtime import Runtime
from typing_extensions import TypedDict

from interlock.nodes.tools._decided import note_person
from interlock.nodes.tools._requests import answered, rejected
from interlock.prompts import load
from interlock.state.calls import Answer, ApprovalRequest, CallKey, CallView, cancelled
from interlock.state.charts import ToolCallChart, step
from interlock.state.deps import Deps
from interlock.state.errors import RunError
from interlock.state.events import ErrorEvent


class ApplyDecisionIn(TypedDict, total=False):
    message: str
    index: int
    attempt: int
    approval_mode: str
    approval: str
    status: str


class ApplyDecisionOut(TypedDict, total=False):
    attempt: int
    by_person: bool
    by_hook: bool
    hook_reason: str
    status: str
    label: str


async def apply_decision(state: ApplyDecisionIn, runtime: Runtime[Deps]) -> ApplyDecisionOut:
    """A decision binds what was shown: when a file changed since, the request is made anew."""
    deps = runtime.context
    key = CallKey(message=state["message"], index=state["index"], attempt=state["attempt"])
    call = deps.journal.call(key)
    request, answer = answered(deps, state["approval"])
    amends = key.attempt + 1 if answer.choice == "modify" else 0
    note_person(runtime, key, state["approval"], answer, amends)
    if answer.choice == "reject":
        deps.journal.finish(key, call, rejected(answer))
        return {"label": "reject", "status": step(ToolCallChart, state["status"], "fail")}
    if answer.choice == "cancel":
        deps.journal.finish(
            key, call, cancelled(load("run/call_cancelled").text(reason="the user cancelled it"))
        )
        return {"label": "cancel", "status": step(ToolCallChart, state["status"], "cancel")}
    if _changed(deps, request):
        return {"label": "stale"}
    if answer.choice == "modify":
        amended = CallView(id=call.id, name=call.name, args=answer.args or {})
        deps.journal.amend(key.model_copy(update={"attempt": amends}), amended)
        status = step(ToolCallChart, state["status"], "modify")
        theirs: ApplyDecisionOut = {"by_person": True, "by_hook": False, "hook_reason": ""}
        return {**theirs, "label": "modify", "attempt": amends, "status": status}
    if await _is_denied(deps, state, call):
        return {"label": "stale"}
    await _remember(runtime, state, call, answer)
    return {"label": "proceed"}


def _changed(deps: Deps, request: ApprovalRequest) -> list[str]:
    """Files that aren't on the disk as they were when the person was shown the request."""
    return [f.path for f in request.files if deps.toolset.now(f.path) != f.on_disk]


async def _is_denied(deps: Deps, state: ApplyDecisionIn, call: CallView) -> bool:
    """Days may lie between question and answer: a rule that came meanwhile and denies the call holds."""
    info = deps.toolset.info(call.name)
    if info is None:
        return False  # said when the call's turn comes
    return (await deps.policy.decide(call, info.risk, state["approval_mode"], ())).decision == "deny"


async def _remember(runtime: Runtime[Deps], state: ApplyDecisionIn, call: CallView, answer: Answer) -> None:
    """An always-choice becomes a narrowed rule of this run, and of later ones where the person wanted it saved."""
    deps = runtime.context
    info = deps.toolset.info(call.name)
    if answer.choice == "proceed_once" or info is None:
        return
    rule = deps.policy.narrow(call, info.risk, answer.choice, state["approval_mode"])
    if rule is None:
        return
    deps.approvals.add_session_rule(state["approval"], rule)
    if answer.choice == "proceed_always_and_save":
        at = datetime.fromtimestamp(answer.at, UTC).isoformat(timespec="seconds")
        note = f"{at}, run {deps.info.run}" + (f", by {answer.by}" if answer.by else "")
        try:
            await asyncio.to_thread(deps.policy.save, info.risk, rule, note)
        except RunError as error:  # what was decided holds; only later runs will ask again
            runtime.stream_writer(ErrorEvent(severity="warning", message=str(error)))
