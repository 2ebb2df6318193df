"""check_context: refuse a request that can't fit the model's window; no call is made for it."""

from langgraph.runtime import Runtime
from typing_extensions import TypedDict

from interlock.state.deps import Deps
from interlock.state.messages import Message, estimate_message
from interlock.state.turn_events import ContextOverflow


class CheckContextIn(TypedDict, total=False):
    head: str
    model: str
    sticky_model: str
    last_prompt_tokens: int


class CheckContextOut(TypedDict, total=False):
    turn_status: str
    error: dict[str, str]


async def check_context(state: CheckContextIn, runtime: Runtime[Deps]) -> CheckContextOut:
    """Compare what is new since the last request with what that left free."""
    deps = runtime.context
    model = state.get("sticky_model") or deps.models.resolve(state["model"])
    known = state.get("last_prompt_tokens", 0)
    history = deps.transcript.read(state["head"])
    estimated = sum(map(estimate_message, _unsent(history) if known else history))
    remaining = deps.models.limit(model) - known
    if estimated <= remaining:
        return {}
    runtime.stream_writer(ContextOverflow(estimated=estimated, remaining=remaining))
    message = (
        f"The request has about {estimated} tokens, {model!r} has room for {remaining}. "
        "Ask for less at a time, or choose a model with a larger window (-m)."
    )
    return {"turn_status": "context_overflow", "error": {"type": "context_overflow", "message": message}}


def _unsent(history: list[Message]) -> list[Message]:
    """What came after the last answer."""
    last = max((i for i, m in enumerate(history) if m.role == "assistant"), default=-1)
    return history[last + 1 :]
