"""requests: how a node asks a person: the request, who is notified of it, the wait, the answer."""

from langgraph.runtime import Runtime
from langgraph.types import interrupt
from pydantic import JsonValue

from interlock.prompts import load_prompt
from interlock.state.calls import Answer, ApprovalRequest, ToolResult, error_result
from interlock.state.deps import Deps
from interlock.state.errors import RunError
from interlock.state.events import ApprovalRequired, Emit
from interlock.state.hooks import HookWait
from interlock.state.node import node
from interlock.state.run import is_hooked


def write_and_emit_request(runtime: Runtime[Deps], request: ApprovalRequest) -> None:
    """Persist the request, idempotently, before anything stops for it; then emit it."""
    deps = runtime.context
    about = {"agent": deps.info.agent, "program": deps.policy.server_fingerprint(request.call.name)}
    request = request.model_copy(update=about)
    name = deps.approvals.write_request(request)
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


def write_request_and_route(runtime: Runtime[Deps], state: HookWait, request: ApprovalRequest) -> HookWait:
    """Write the request, and return the update of its node: hooks are notified before the person is waited for."""
    write_and_emit_request(runtime, request)
    return {
        "label": "notify" if is_hooked(state, "Notification") else "asked",
        "approval": request.key,
    }


@node(reads=("approval",), labels=("approval", "question", "outcome"), group="questions")
async def notify(state: HookWait, runtime: Runtime[Deps]) -> HookWait:
    """Fire notification hooks between writing a request and waiting for the answer. Their output changes nothing."""
    deps = runtime.context
    key = state["approval"]
    request = deps.approvals.find_request(key)
    if request is None:
        raise RunError(f"Request {key!r} doesn't exist. See: interlock approvals")
    await fire_request_notification_hooks(deps, request, runtime.stream_writer)
    return {"label": request.kind}


async def fire_request_notification_hooks(deps: Deps, request: ApprovalRequest, emit: Emit) -> None:
    name = deps.approvals.write_request(request)
    payload: dict[str, JsonValue] = {
        "notification_type": "ToolPermission",
        "message": f"{request.call.name} waits for a person: {request.reason}",
        "details": {
            "id": name,
            "kind": request.kind,
            "tool": request.call.name,
            "reason": request.reason,
            "preview": request.preview,
        },
    }
    firing, subject = f"{request.key}:notify", "ToolPermission"
    await deps.hooks.fire("Notification", firing, payload, subject=subject, emit=emit)


@node(reads=("approval",), writes=("approval",), group="questions")
async def await_person(state: HookWait) -> HookWait:
    """Interrupts with the request's key; the answer is a row. Reruns on every resume, so it does nothing else
    (`docs/internals.md#tools-answer`).
    """
    interrupt(state["approval"])
    return {"approval": state["approval"]}


def require_request_and_answer(deps: Deps, key: str) -> tuple[ApprovalRequest, Answer]:
    """A request and its answer. Raises `RunError` if the run continued without one."""
    request, answer = deps.approvals.find_request(key), deps.approvals.find_answer(key)
    if request is None or answer is None:
        raise RunError(f"Request {key!r} has no answer. See: interlock approvals")
    return request, answer


def has_server_changed(deps: Deps, request: ApprovalRequest) -> bool:
    """Whether the MCP server's definition has changed since the request was made. Earlier versions kept none."""
    return request.program not in ("", deps.policy.server_fingerprint(request.call.name))


def server_changed_result(request: ApprovalRequest) -> ToolResult:
    """What the model reads when an answer was meant for a server that has another definition now."""
    return error_result(
        "stale_approval", load_prompt("run/call_stale").render(files=f"the server of {request.call.name}")
    )


def rejection_result(answer: Answer) -> ToolResult:
    """What the model reads after a rejection."""
    if answer.feedback:
        text = load_prompt("run/call_rejected").render(feedback=answer.feedback)
    else:
        text = load_prompt("run/call_rejected_silently").render()
    result = error_result("rejected", text, by=answer.by, why=answer.feedback or "")
    return result.model_copy(update={"error": {**(result.error or {}), "why": answer.feedback or ""}})
