"""truncate: the beginning and the end of an output."""

from langgraph.runtime import Runtime
from typing_extensions import TypedDict

from interlock.nodes.summarize._shortening import truncated
from interlock.nodes.summarize._source import SourceIn, source_of
from interlock.state.deps import Deps
from interlock.state.messages import Message

_CHARS_PER_TOKEN = 4


class TruncateIn(SourceIn, total=False):
    saved_to: str


class TruncateOut(TypedDict, total=False):
    shortened: str
    summarize_status: str


async def truncate(state: TruncateIn, runtime: Runtime[Deps]) -> TruncateOut:
    """40,000 characters at most; in place of a summary no more than that might have had."""
    deps = runtime.context
    source = source_of(state, deps)
    limit = deps.settings.tools.truncate_at
    if source.rule.how == "summarize":
        limit = min(limit, source.rule.token_budget * _CHARS_PER_TOKEN)
    text = truncated(source.tool, source.text, limit, state["saved_to"])
    record = deps.transcript.append("", [Message(role="tool", name=source.tool, content=text)])
    return {"shortened": record, "summarize_status": "truncated"}
