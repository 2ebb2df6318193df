"""pre_compress: tell hooks that the conversation is about to be compressed."""

from langgraph.runtime import Runtime

from interlock.nodes._hooked import AskedIn, AskedOut, fired
from interlock.state.deps import Deps


class PreCompressIn(AskedIn, total=False):
    tokens: int
    force: bool


class PreCompressOut(AskedOut, total=False):
    label: str
    compress_failed_at: int


async def pre_compress(state: PreCompressIn, runtime: Runtime[Deps]) -> PreCompressOut:
    """A hook that says no only puts this one off, like an attempt that failed."""
    trigger = "manual" if state.get("force") else "auto"
    fire = await fired("PreCompress", {"trigger": trigger}, state, runtime, subject=trigger)
    if fire.open:
        return {**fire.asks}
    outcome = fire.outcome
    if outcome.stop is None and outcome.decision != "block":
        return {**fire.asks, "label": "go on"}
    put_off: PreCompressOut = {**fire.asks, "label": "put off"}
    return put_off if state.get("force") else {**put_off, "compress_failed_at": max(state["tokens"], 1)}
