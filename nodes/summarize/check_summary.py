"""check_summary: a summary counts when it is shorter than the output, also once nothing important is missing."""

from langgraph.runtime import Runtime
from typing_extensions import TypedDict

from interlock.nodes.summarize._shortening import summarized
from interlock.nodes.summarize._source import SourceIn, source_of
from interlock.state.deps import Deps
from interlock.state.messages import Message
from interlock.state.text import estimate_tokens


class CheckSummaryIn(SourceIn, total=False):
    summary: str
    saved_to: str


class CheckSummaryOut(TypedDict, total=False):
    label: str
    shortened: str
    summarize_status: str


async def check_summary(state: CheckSummaryIn, runtime: Runtime[Deps]) -> CheckSummaryOut:
    transcript = runtime.context.transcript
    if not state["summary"]:
        return {"label": "failed"}
    source = source_of(state, runtime.context)
    summary = transcript.message(state["summary"]).text
    text = summarized(source.tool, summary, source.text, state["saved_to"])
    if estimate_tokens(text) >= estimate_tokens(source.text):
        return {"label": "failed"}
    record = transcript.append("", [Message(role="tool", name=source.tool, content=text)])
    return {"label": "good", "shortened": record, "summarize_status": "summarized"}
