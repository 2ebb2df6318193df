"""check_threshold: is the conversation long enough to be compressed?"""

from langgraph.runtime import Runtime
from typing_extensions import TypedDict

from interlock.nodes.compress._sizes import Size, SizedIn, size
from interlock.state.deps import Deps
from interlock.state.messages import curated


class CheckThresholdIn(SizedIn, total=False):
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
    known = size(deps, state)
    known = Size(known.tokens, state.get("token_limit") or known.limit)
    threshold = state.get("threshold") or deps.settings.model.compression_threshold
    due = state.get("force") or known.reaches(threshold)
    if due and not any(m.role != "system" for m in curated(deps.transcript.read(state["head"]))):
        due = False
    return {
        "tokens": known.tokens,
        "token_limit": known.limit,
        "label": "due" if due else "below",
        "compress_status": "noop",
        "base": state["head"],
        "tokens_before": known.tokens,
        "tokens_after": known.tokens,
    }
