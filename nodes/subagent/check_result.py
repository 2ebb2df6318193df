"""check_result: did the batch hand over the result?"""

from langgraph.runtime import Runtime
from typing_extensions import TypedDict

from interlock.nodes.subagent._batch import succeeded
from interlock.state.deps import Deps
from interlock.state.subagent import Scratchpad


class CheckResultIn(TypedDict, total=False):
    head: str
    reply: str
    stop: str
    stopped_by: str
    scratchpad: Scratchpad
    sent_back: bool
    recovering: bool


class CheckResultOut(TypedDict, total=False):
    label: str
    reason: str
    answer: str
    error: dict[str, str]


async def check_result(state: CheckResultIn, runtime: Runtime[Deps]) -> CheckResultOut:
    """A valid `complete_task` ends it; open questions send it back, once, and never in the last turn."""
    if succeeded(runtime.context.transcript, state["head"], state["reply"], "complete_task"):
        if state["scratchpad"]["questions"] and not state["sent_back"] and not state["recovering"]:
            return {"label": "open questions", "answer": state["reply"]}
        return {"label": "complete", "reason": "goal", "answer": state["reply"]}
    if stop := state.get("stop"):
        if state.get("stopped_by") == "hook":
            return {"label": "aborted", "error": {"type": "stopped_by_hook", "message": stop}}
        return {"label": "aborted", "reason": "aborted"}
    return {"label": "go on"}
