"""check_threshold: is the conversation long enough to be compressed?"""

from langgraph.runtime import Runtime
from typing_extensions import TypedDict

from interlock.nodes.compress._sizes import tokens_of
from interlock.state.deps import Deps
from interlock.state.messages import curated


class CheckThresholdIn(TypedDict, total=False):
    head: str
    model: str
    sticky_model: str
    last_prompt_tokens: int
    force: bool
    token_limit: int
    threshold: float


class CheckThresholdOut(TypedDict, total=False):
    tokens: int
    token_limit: int
    label: str
    compress_status: str
    base: str
    tokens_before: int
    tokens_after: int


async def check_threshold(state: CheckThresholdIn, runtime: Runtime[Deps]) -> CheckThresholdOut:
    """At the threshold it is long enough. Forced, any conversation is that isn't empty."""
    deps = runtime.context
    tokens = state.get("last_prompt_tokens") or tokens_of(deps.transcript.read(state["head"]))
    limit = state.get("token_limit") or deps.models.limit(
        state.get("sticky_model") or deps.models.resolve(state["model"])
    )
    threshold = state.get("threshold") or deps.settings.model.compression_threshold
    due = state.get("force") or tokens >= threshold * limit
    if due and not any(m.role != "system" for m in curated(deps.transcript.read(state["head"]))):
        due = False
    return {
        "tokens": tokens,
        "token_limit": limit,
        "label": "due" if due else "below",
        "compress_status": "noop",
        "base": state["head"],
        "tokens_before": tokens,
        "tokens_after": tokens,
    }
