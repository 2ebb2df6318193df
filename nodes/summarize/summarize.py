"""summarize: ask the helper model for what matters in an output."""

from langgraph.runtime import Runtime
from typing_extensions import TypedDict

from interlock.nodes._ask_text import Request, ask_text
from interlock.nodes.summarize._shortening import ends_of
from interlock.nodes.summarize._source import Source, SourceIn, source_of
from interlock.prompts import load
from interlock.state.deps import Deps
from interlock.state.messages import Message

_TIMEOUT_S = 60.0
_ATTEMPTS = 2
_SENT_CHARS = 400_000
"""Of an output, to the helper; of a longer one head and tail."""
_MESSAGES, _MESSAGE_CHARS = 10, 1_000
"""Of the conversation: the newest messages, and so much of each."""


class SummarizeOut(TypedDict, total=False):
    summary: str
    label: str


async def summarize(state: SourceIn, runtime: Runtime[Deps]) -> SummarizeOut:
    source = source_of(state, runtime.context)
    system = Message(role="system", content=load("summarize/system").text())
    request = Request(
        role="summarizer",
        messages=[system, Message(role="user", origin="nudge", content=_task(source, runtime.context))],
        head=source.context,
        timeout_s=_TIMEOUT_S,
        attempts=_ATTEMPTS,
    )
    told = await ask_text(request, runtime)
    return {"summary": told.record, "label": told.how}


def _task(source: Source, deps: Deps) -> str:
    output = source.text
    if len(output) > _SENT_CHARS:
        output = "\n[…]\n".join(ends_of(output, _SENT_CHARS))
    return load("summarize/output").text(
        tool=source.tool,
        conversation=_conversation(source.context, deps) or "(none)",
        output=output,
        budget=str(source.rule.token_budget),
    )


def _conversation(head: str, deps: Deps) -> str:
    """The person's last request and the newest messages, as text: their calls aren't answered yet."""
    history = deps.transcript.read(head) if head else []
    said = [m for m in history if m.role != "system" and m.origin != "context"]
    asked = [m for m in said[:-_MESSAGES] if m.role == "user"][-1:]
    return "\n".join(_line(m) for m in [*asked, *said[-_MESSAGES:]])


def _line(message: Message) -> str:
    calls = "".join(f" [calls {call.name} {call.args}]" for call in message.tool_calls)
    return f"{message.role}: {message.text}{calls}"[:_MESSAGE_CHARS]
