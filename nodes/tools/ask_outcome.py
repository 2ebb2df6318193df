"""ask_outcome: write the request about a call whose effect a crash hid."""

from langgraph.runtime import Runtime
from typing_extensions import TypedDict

from interlock.nodes.tools._requests import put_request
from interlock.state.calls import ApprovalRequest, CallKey
from interlock.state.deps import Deps


class AskOutcomeIn(TypedDict, total=False):
    message: str
    index: int
    attempt: int


class AskOutcomeOut(TypedDict, total=False):
    approval: str


async def ask_outcome(state: AskOutcomeIn, runtime: Runtime[Deps]) -> AskOutcomeOut:
    """Only a person can tell whether it happened; the preview is what was about to run."""
    deps = runtime.context
    key = CallKey(message=state["message"], index=state["index"], attempt=state["attempt"])
    call = deps.journal.call(key)
    reason = (
        "The run was killed while this ran, so it may or may not have taken effect. "
        "Look, then answer redo (run it again) or skip (tell the model that the outcome is unknown)."
    )
    request = ApprovalRequest(
        key=f"{key}:outcome:1",
        kind="outcome",
        call=call,
        reason=reason,
        preview=deps.toolset.summary(call),
        choices=("proceed_once", "reject"),
        questions=({"question": reason, "options": ["redo", "skip"]},),
    )
    put_request(runtime, request)
    return {"approval": request.key}
