"""finish: say how the prompt ended."""

from langgraph.runtime import Runtime
from typing_extensions import TypedDict

from interlock.nodes.main._refusal import refusal
from interlock.state.deps import Deps
from interlock.state.errors import RunError
from interlock.state.refused import Refusals, open_refusal, refusals_in
from interlock.state.text import is_visible

_STATUS = {
    "ok": "done",
    "context_overflow": "context_overflow",
    "session_limit": "turn_limit",
    "invalid_stream": "invalid_stream",
    "loop_detected": "loop_detected",
    "stopped_by_hook": "stopped_by_hook",
    "blocked_by_hook": "blocked_by_hook",
    "error": "failed",
}
"""Status of the last turn → status of `main`."""
_NO_ANSWER = "The model ended without an answer. Try again with: interlock resume RUN"


class FinishIn(TypedDict, total=False):
    turn_status: str
    reply: str
    stop: str
    stopped_by: str
    refused: Refusals


class FinishOut(TypedDict, total=False):
    status: str
    error: dict[str, str]


async def finish(state: FinishIn, runtime: Runtime[Deps]) -> FinishOut:
    """A batch that asked for the end ends the run, whatever the turn before it said. No answer is no success."""
    if reason := state.get("stop"):
        if state.get("stopped_by") == "hook":
            return {"status": "stopped_by_hook", "error": {"type": "stopped_by_hook", "message": reason}}
        return {"status": "cancelled"}
    if state["turn_status"] == "ok" and not is_visible(
        runtime.context.transcript.message(state["reply"]).text
    ):
        return {"status": "invalid_stream", "error": {"type": "invalid_stream", "message": _NO_ANSWER}}
    if state["turn_status"] == "ok" and (refused := open_refusal(refusals_in(state))):
        return {"status": "failed", "error": refusal(refused, runtime.context.info.run)}
    try:
        return {"status": _STATUS[state["turn_status"]]}
    except KeyError:
        raise RunError(
            f"main ended after a turn that was {state['turn_status']!r}; expected {sorted(_STATUS)}."
        ) from None
