"""notify: tell the user's hooks that a person is asked; a notification may come twice after a kill."""

from langgraph.runtime import Runtime
from pydantic import JsonValue
from typing_extensions import TypedDict

from interlock.state.deps import Deps
from interlock.state.errors import RunError


class NotifyIn(TypedDict, total=False):
    approval: str


class NotifyOut(TypedDict, total=False):
    label: str


async def notify(state: NotifyIn, runtime: Runtime[Deps]) -> NotifyOut:
    """Between the writing of a request and the waiting for its answer. What a hook says here changes nothing."""
    deps = runtime.context
    key = state["approval"]
    request = deps.approvals.get(key)
    if request is None:
        raise RunError(f"Request {key!r} isn't there. See: interlock approvals")
    name = deps.approvals.ask(request)
    given: dict[str, JsonValue] = {
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
    await deps.hooks.fire(
        "Notification", f"{key}:notify", given, subject="ToolPermission", emit=runtime.stream_writer
    )
    return {"label": "told"}
