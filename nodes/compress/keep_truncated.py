"""keep_truncated: no snapshot is made; what shortening older outputs gained is kept."""

from langgraph.runtime import Runtime
from typing_extensions import TypedDict

from interlock.nodes.compress._sizes import tokens_of
from interlock.state.deps import Deps


class KeepTruncatedIn(TypedDict, total=False):
    head: str
    base: str


class KeepTruncatedOut(TypedDict, total=False):
    head: str
    last_prompt_tokens: int
    compress_status: str
    tokens_before: int
    tokens_after: int


async def keep_truncated(state: KeepTruncatedIn, runtime: Runtime[Deps]) -> KeepTruncatedOut:
    transcript = runtime.context.transcript
    if state["base"] == state["head"]:
        return {"compress_status": "noop"}
    return {
        "head": state["base"],
        "last_prompt_tokens": 0,
        "compress_status": "truncated",
        "tokens_before": tokens_of(transcript.read(state["head"])),
        "tokens_after": tokens_of(transcript.read(state["base"])),
    }
