"""session_end: let hooks see that a run has come to its end; nothing that they say changes it."""

from langgraph.runtime import Runtime

from interlock.nodes.hooks._session import SessionIn, SessionOut, fired_around
from interlock.state.deps import Deps


async def session_end(state: SessionIn, runtime: Runtime[Deps]) -> SessionOut:
    _, asks = await fired_around("SessionEnd", {"reason": "exit"}, "exit", state, runtime)
    return asks
