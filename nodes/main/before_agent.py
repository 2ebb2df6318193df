"""before_agent: let hooks see a prompt before any model does."""

from langgraph.runtime import Runtime

from interlock.nodes._hooked import AskedIn, AskedOut, context_message, ending, fired
from interlock.state.deps import Deps


class BeforeAgentIn(AskedIn, total=False):
    head: str
    asked: str


class BeforeAgentOut(AskedOut, total=False):
    head: str
    prompt: str
    hook_stage: str
    turn_status: str
    error: dict[str, str]


async def before_agent(state: BeforeAgentIn, runtime: Runtime[Deps]) -> BeforeAgentOut:
    """A stopped prompt stays in the conversation, a blocked one leaves it and waits to be tried again."""
    transcript = runtime.context.transcript
    given = {"prompt": transcript.message(state["asked"]).text}
    fire = await fired("BeforeAgent", given, state, runtime)
    if fire.open:
        return {**fire.asks}
    if end := ending("BeforeAgent", fire.outcome, "the prompt", runtime):
        ended: BeforeAgentOut = {**fire.asks, "turn_status": end.status, "error": end.error}
        if end.status == "stopped_by_hook":
            return ended
        without = transcript.ids(state["head"], 2)[0]
        return {**ended, "head": without, "prompt": state["asked"]}
    passed: BeforeAgentOut = {**fire.asks, "hook_stage": "admitted"}
    if context := fire.outcome.context:
        passed["head"] = transcript.append(state["head"], [context_message(context)])
    return passed
