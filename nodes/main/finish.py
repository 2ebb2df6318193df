"""finish: say how the prompt ended."""

from typing_extensions import TypedDict

from interlock.state.errors import RunError

_STATUS = {
    "ok": "done",
    "context_overflow": "context_overflow",
    "session_limit": "turn_limit",
    "invalid_stream": "invalid_stream",
    "error": "failed",
}
"""Status of the last turn → status of `main`."""


class FinishIn(TypedDict, total=False):
    turn_status: str
    stop: str


class FinishOut(TypedDict, total=False):
    status: str


async def finish(state: FinishIn) -> FinishOut:
    """A batch that asked for the end ends the run, whatever the turn before it said."""
    if state.get("stop"):
        return {"status": "cancelled"}
    try:
        return {"status": _STATUS[state["turn_status"]]}
    except KeyError:
        raise RunError(
            f"main ended after a turn that was {state.get('turn_status')!r}; expected {sorted(_STATUS)}."
        ) from None
