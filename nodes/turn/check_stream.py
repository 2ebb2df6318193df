"""check_stream: accept the answer, ask again, or end the turn."""

from langgraph.runtime import Runtime
from typing_extensions import TypedDict

from interlock.nodes.turn._accepted import Accepted, accepted
from interlock.state.deps import Deps
from interlock.state.hooks import is_hooked
from interlock.state.messages import Message
from interlock.state.text import is_visible
from interlock.state.turn import STREAM_ATTEMPTS
from interlock.state.turn_events import InvalidStream

_BLOCKED = {
    "safety",
    "recitation",
    "blocklist",
    "prohibited_content",
    "spii",
    "image_safety",
    "prompt_blocked",
}
"""Finish reasons that asking again doesn't change."""


class CheckStreamIn(TypedDict, total=False):
    head: str
    hooked: str
    said: str
    candidate: str
    attempt: int
    stream_problem: str
    finish_reason: str
    error: dict[str, str]
    failed_model: str
    rerouted: bool
    loop_found: dict[str, str]


class CheckStreamOut(Accepted, total=False):
    attempt: int
    stream_problem: str
    rerouted: bool
    error: dict[str, str]


async def check_stream(state: CheckStreamIn, runtime: Runtime[Deps]) -> CheckStreamOut:
    """An answer enters the conversation only if it is whole; here, or where hooks see it first, after them."""
    if error := state.get("error"):
        if state.get("failed_model") and not state["rerouted"]:
            return {"turn_status": "", "rerouted": True}
        overflow = error["type"] == "context_overflow"
        return {"turn_status": "context_overflow" if overflow else "error"}
    if state.get("loop_found") or state["stream_problem"] == "cancelled":
        return {"turn_status": ""}
    transcript = runtime.context.transcript
    message = transcript.message(state["candidate"])
    reason = state.get("finish_reason", "")
    if reason in _BLOCKED and not is_visible(message.text) and not message.tool_calls:
        text = f"The provider blocked the answer ({reason}: {state['stream_problem'] or 'no reason given'})."
        return {"turn_status": "error", "error": {"type": "blocked", "message": text}}
    answers_tool = transcript.message(state["head"]).role == "tool"
    problem = state["stream_problem"] or _problem(message, reason, answers_tool)
    if not problem:
        if is_hooked(state.get("hooked", ""), "AfterModel"):
            return {"turn_status": "calls" if message.tool_calls else "ok"}
        return {**accepted(state, transcript, state["candidate"])}
    runtime.stream_writer(InvalidStream(reason=problem))
    if state["attempt"] < STREAM_ATTEMPTS:
        return {"attempt": state["attempt"] + 1, "stream_problem": problem, "turn_status": ""}
    text = f"{STREAM_ATTEMPTS} answers in a row were invalid; the last: {problem}. Try again with: interlock resume RUN"
    return {"turn_status": "invalid_stream", "error": {"type": "invalid_stream", "message": text}}


def _problem(message: Message, reason: str, answers_tool: bool) -> str:
    """Why the answer can't be used; empty: it can (`pipelines.md` §2)."""
    if message.tool_calls:
        return ""
    if not reason:
        return "the stream ended without a finish reason"
    if is_visible(message.text):
        return ""
    if message.thought:
        return "the answer holds thoughts only"
    return "" if answers_tool else "the answer is empty"
