"""session_start: let hooks see that a session begins, or goes on with a further prompt."""

from langgraph.runtime import Runtime

from interlock.nodes._hooked import context_message, ending
from interlock.nodes.hooks._session import SessionIn, SessionOut, fired_around
from interlock.state.deps import Deps
from interlock.state.errors import HookError


class TalkIn(SessionIn, total=False):
    head: str


class TalkOut(SessionOut, total=False):
    head: str


async def session_start(state: SessionIn, runtime: Runtime[Deps]) -> SessionOut:
    """Raises `HookError` where a hook says no: nothing has run yet. A resumed run asks the hooks anew."""
    asks, _ = await _started(state, runtime)
    return asks


async def session_start_in_talk(state: TalkIn, runtime: Runtime[Deps]) -> TalkOut:
    """As `session_start`; what the hooks tell the model enters the conversation."""
    asks, context = await _started(state, runtime)
    told: TalkOut = {**asks}
    if context and _takes_more(state["head"], runtime.context):
        told["head"] = runtime.context.transcript.append(state["head"], [context_message(context)])
    return told


async def _started(state: SessionIn, runtime: Runtime[Deps]) -> tuple[SessionOut, str]:
    """What to write of the firing, and the hooks' context."""
    source = state.get("session", "startup")
    fire, asks = await fired_around("SessionStart", {"source": source}, source, state, runtime)
    if end := ending("SessionStart", fire.outcome, "the run", runtime):
        raise HookError(end.error["message"], end.status)
    return asks, fire.outcome.context


def _takes_more(head: str, deps: Deps) -> bool:
    """A conversation that ends with calls takes nothing but their answers."""
    return not head or not deps.transcript.message(head).tool_calls
