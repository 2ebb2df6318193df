"""session_start: let hooks see that a session begins, or goes on with a further prompt."""

from langgraph.runtime import Runtime

from interlock.nodes.hooks._session import SessionIn, SessionOut, started
from interlock.state.deps import Deps


async def session_start(state: SessionIn, runtime: Runtime[Deps]) -> SessionOut:
    """Raises `HookError` where a hook says no: nothing has run yet. A resumed run asks the hooks anew."""
    asks, _ = await started(state, runtime)
    return asks
