"""_requests: put a request to a person, and read what came back."""

from langgraph.runtime import Runtime

from interlock.prompts import load
from interlock.state.calls import Answer, ApprovalRequest, ToolResult, failure
from interlock.state.deps import Deps
from interlock.state.errors import RunError
from interlock.state.events import ApprovalRequired


def put_request(runtime: Runtime[Deps], request: ApprovalRequest) -> None:
    """Write it, idempotently, before anything stops for it; and tell."""
    request = request.model_copy(update={"agent": runtime.context.info.agent})
    name = runtime.context.approvals.ask(request)
    runtime.stream_writer(
        ApprovalRequired(
            id=name,
            kind=request.kind,
            tool_name=request.call.name,
            args=request.call.args,
            reason=request.reason,
            preview=request.preview,
            choices=list(request.choices),
        )
    )


def answered(deps: Deps, key: str) -> tuple[ApprovalRequest, Answer]:
    """A request and its answer. Raises `RunError` when the run went on without one."""
    request, answer = deps.approvals.get(key), deps.approvals.answer(key)
    if request is None or answer is None:
        raise RunError(f"Request {key!r} has no answer. See: interlock approvals")
    return request, answer


def rejected(answer: Answer) -> ToolResult:
    """What the model reads when a person said no."""
    if answer.feedback:
        text = load("run/call_rejected").text(feedback=answer.feedback)
    else:
        text = load("run/call_rejected_silently").text()
    return failure("rejected", text, by=answer.by, why=answer.feedback or "")
