"""take_edit: go on with what `edit` made of a call whose old string isn't in its file."""

from langgraph.runtime import Runtime
from typing_extensions import TypedDict

from interlock.nodes.edit._subject import strings
from interlock.nodes.tools._decided import note_change
from interlock.prompts import load
from interlock.state.calls import CallKey, CallView, ToolResult, failure
from interlock.state.charts import ToolCallChart, step
from interlock.state.deps import Deps


class TakeEditIn(TypedDict, total=False):
    message: str
    index: int
    attempt: int
    helper: str
    helper_role: str
    edit_status: str
    explanation: str
    error: dict[str, str]
    status: str


class TakeEditOut(TypedDict, total=False):
    attempt: int
    status: str
    label: str


async def take_edit(state: TakeEditIn, runtime: Runtime[Deps]) -> TakeEditOut:
    """Corrected strings are a further attempt, which is checked and approved like any other; else the call is over."""
    deps = runtime.context
    key = CallKey(message=state["message"], index=state["index"], attempt=state["attempt"])
    call = deps.journal.call(key)
    if state["edit_status"] == "applied":
        tried = strings(
            deps,
            {
                "message": key.message,
                "index": key.index,
                "attempt": key.attempt,
                "helper": state["helper"],
                "helper_role": state["helper_role"],
            },
        )
        args = {**call.args, "old_string": tried.old, "new_string": tried.new}
        amended = CallView(id=call.id, name=call.name, args=args)
        deps.journal.amend(key.model_copy(update={"attempt": key.attempt + 1}), amended)
        why = state.get("explanation") or "what the edit looked for isn't in the file"
        note_change(runtime, key, "helper", key.attempt + 1, state["helper_role"], why)
        return {"label": "corrected", "attempt": key.attempt + 1}
    if state["edit_status"] == "already_applied":
        text = load("run/edit_already_there").text(explanation=state.get("explanation") or "")
        deps.journal.finish(key, call, ToolResult(status="success", content=text))
        return {"label": "answered", "status": _through(state["status"], "schedule", "execute", "succeed")}
    deps.journal.finish(key, call, failure(state["error"]["code"], state["error"]["message"]))
    return {"label": "answered", "status": _through(state["status"], "fail")}


def _through(status: str, *events: str) -> str:
    for event in events:
        status = step(ToolCallChart, status, event)
    return status
