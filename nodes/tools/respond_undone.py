"""respond_undone: tell that a call was answered without being run."""

from langgraph.runtime import Runtime
from typing_extensions import TypedDict

from interlock.nodes.tools._results import result_event
from interlock.nodes.tools._told import told
from interlock.nodes.tools._verdicts import verdict
from interlock.state.calls import CallKey
from interlock.state.deps import Deps
from interlock.state.tools import Verdicts


class RespondUndoneIn(TypedDict, total=False):
    message: str
    index: int
    attempt: int
    by_hook: bool
    label: str


class RespondUndoneOut(TypedDict, total=False):
    decided: Verdicts


async def respond_undone(state: RespondUndoneIn, runtime: Runtime[Deps]) -> RespondUndoneOut:
    """A cancel is passed on: it ends every call of the batch that hasn't run."""
    key = CallKey(message=state["message"], index=state["index"], attempt=state["attempt"])
    instead = told(runtime.context, key, by_hook=state.get("by_hook", False))
    word = verdict("cancel" if state["label"] == "cancel" else "answered", state["attempt"], instead)
    runtime.stream_writer(result_event(runtime.context, key, word))
    return {"decided": {str(state["index"]): word}}
