"""session_start_in_talk: as `session_start`, for a workflow that has a conversation."""

from langgraph.runtime import Runtime

from interlock.nodes._hooked import context_message
from interlock.nodes.hooks._session import SessionIn, SessionOut, started
from interlock.state.deps import Deps


class TalkIn(SessionIn, total=False):
    head: str


class TalkOut(SessionOut, total=False):
    head: str


async def session_start_in_talk(state: TalkIn, runtime: Runtime[Deps]) -> TalkOut:
    """What hooks tell the model enters the conversation; one that ends with calls takes nothing but their answers."""
    transcript = runtime.context.transcript
    asks, context = await started(state, runtime)
    told: TalkOut = {**asks}
    if context and not (state["head"] and transcript.message(state["head"]).tool_calls):
        told["head"] = transcript.append(state["head"], [context_message(context)])
    return told
