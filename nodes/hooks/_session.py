"""_session: what the nodes around a run share: one firing, under keys that no workflow has."""

from collections.abc import Mapping

from langgraph.runtime import Runtime
from pydantic import JsonValue
from typing_extensions import TypedDict

from interlock.nodes._hooked import Fired, ending, fired
from interlock.state.deps import Deps
from interlock.state.errors import HookError
from interlock.state.hooks import HookEvent


class SessionIn(TypedDict, total=False):
    session: str
    session_key: str


class SessionOut(TypedDict, total=False):
    session_event: str
    session_key: str
    session_request: str


class Session(TypedDict, total=False):
    """What a root graph knows besides the state of its workflow."""

    session: str
    """`startup`, or `resume` for a further prompt; absent where no hook asks."""
    session_event: str
    """The event whose hooks a kill interrupted, while a person says what became of them; empty: none."""
    session_key: str
    """Key of that firing."""
    session_request: str
    """Key of the request about it."""


async def fired_around(
    event: HookEvent, given: Mapping[str, JsonValue], subject: str, state: SessionIn, runtime: Runtime[Deps]
) -> tuple[Fired, SessionOut]:
    """The firing, and what the node writes of it; with `unknown` it writes nothing else."""
    fire = await fired(event, given, {"hook_key": state.get("session_key", "")}, runtime, subject)
    asks: SessionOut = {
        "session_event": fire.asks.get("hook_event", ""),
        "session_key": fire.asks.get("hook_key", ""),
        "session_request": fire.asks.get("approval", ""),
    }
    return fire, asks


async def started(state: SessionIn, runtime: Runtime[Deps]) -> tuple[SessionOut, str]:
    """What to write of SessionStart, and what its hooks tell the model. Raises `HookError` where one says no."""
    source = state.get("session", "startup")
    fire, asks = await fired_around("SessionStart", {"source": source}, source, state, runtime)
    if end := ending("SessionStart", fire.outcome, "the run", runtime):
        raise HookError(end.error["message"], end.status)
    return asks, fire.outcome.context
