"""respond: tell that a call is done."""

from langgraph.runtime import Runtime
from typing_extensions import TypedDict

from interlock.nodes.tools._results import result_event
from interlock.nodes.tools._told import told
from interlock.nodes.tools._verdicts import verdict
from interlock.state.calls import CallKey
from interlock.state.deps import Deps
from interlock.state.tools import Verdicts


class RespondIn(TypedDict, total=False):
    message: str
    index: int
    attempt: int
    by_hook: bool
    shortened: str
    hook_notes: str
    hook_stop: str


class RespondOut(TypedDict, total=False):
    finished: Verdicts


async def respond(state: RespondIn, runtime: Runtime[Deps]) -> RespondOut:
    """The result itself stays in the journal; the batch learns which attempt holds it."""
    key = CallKey(message=state["message"], index=state["index"], attempt=state["attempt"])
    stop = state.get("hook_stop", "")
    instead = told(
        runtime.context,
        key,
        state.get("shortened", ""),
        by_hook=state.get("by_hook", False),
        notes=state.get("hook_notes", ""),
        stop=stop,
    )
    word = verdict("stop" if stop else "done", state["attempt"], instead)
    runtime.stream_writer(result_event(runtime.context, key, word))
    return {"finished": {str(state["index"]): word}}
