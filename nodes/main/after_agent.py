"""after_agent: let hooks see the answer to a prompt before the prompt counts as done."""

from langgraph.runtime import Runtime

from interlock.nodes._hooked import AskedIn, AskedOut, ending, fired
from interlock.state.deps import Deps
from interlock.state.hooks import NO_REASON, HookOutcome
from interlock.state.messages import Message
from interlock.state.text import is_visible
from interlock.state.turn_events import AgentBlocked

_SILENT = "[no response text]"
"""What the hook reads where the model said nothing (gemini-cli's words)."""


class AfterAgentIn(AskedIn, total=False):
    head: str
    asked: str
    said: str
    reply: str
    fed_back: bool


class AfterAgentOut(AskedOut, total=False):
    head: str
    hook_stage: str
    fed_back: bool
    turn_status: str
    error: dict[str, str]


async def after_agent(state: AfterAgentIn, runtime: Runtime[Deps]) -> AfterAgentOut:
    """A block with a reason is the request of another turn. No answer is an error, which hooks aren't asked about."""
    transcript = runtime.context.transcript
    if not is_visible(transcript.message(state["reply"]).text):
        return {"turn_status": "ok", "hook_event": "", "hook_key": ""}
    said = [m.text for m in transcript.read(state["said"])] if state["said"] else []
    fire = await fired(
        "AfterAgent",
        {
            "prompt": transcript.message(state["asked"]).text,
            "prompt_response": "\n".join(said) or _SILENT,
            "stop_hook_active": state["fed_back"],
        },
        state,
        runtime,
    )
    if fire.open:
        return {**fire.asks}
    if reason := _feedback(fire.outcome):
        runtime.stream_writer(AgentBlocked(reason=reason))
        head = transcript.append(state["head"], [Message(role="user", origin="hook", content=reason)])
        return {**fire.asks, "head": head, "hook_stage": "admitted", "fed_back": True, "turn_status": ""}
    if end := ending("AfterAgent", fire.outcome, "the answer", runtime):
        return {**fire.asks, "hook_stage": "answered", "turn_status": end.status, "error": end.error}
    return {**fire.asks, "hook_stage": "admitted", "turn_status": "ok"}


def _feedback(outcome: HookOutcome) -> str:
    """What the model is told to do yet; empty: nothing. Of a required hook that failed it can't learn anything."""
    failed = any(v.decision == "block" and v.warning for v in outcome.verdicts)
    blocks = outcome.stop is None and outcome.decision == "block" and not failed
    return outcome.reason.strip() if blocks and outcome.reason != NO_REASON else ""
