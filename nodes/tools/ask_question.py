"""ask_question: write the model's question to the user as a request."""

from langgraph.runtime import Runtime
from typing_extensions import TypedDict

from interlock.nodes.tools._requests import put_request
from interlock.state.calls import ApprovalRequest, CallKey
from interlock.state.deps import Deps


class AskQuestionIn(TypedDict, total=False):
    message: str
    index: int
    attempt: int


class AskQuestionOut(TypedDict, total=False):
    approval: str


async def ask_question(state: AskQuestionIn, runtime: Runtime[Deps]) -> AskQuestionOut:
    """Needs no permission: to ask is harmless, and the answer is the person's own."""
    deps = runtime.context
    key = CallKey(message=state["message"], index=state["index"], attempt=state["attempt"])
    call = deps.journal.call(key)
    raw = call.args.get("questions")
    questions = tuple(q for q in raw if isinstance(q, dict)) if isinstance(raw, list) else ()
    preview = await deps.toolset.preview(call, ())
    request = ApprovalRequest(
        key=f"{key}:question:1",
        kind="question",
        call=call,
        reason="The model asks you.",
        preview=preview.text,
        choices=("proceed_once", "reject"),
        questions=questions,
    )
    put_request(runtime, request)
    return {"approval": request.key}
