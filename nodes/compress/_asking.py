"""_asking: what the compressor is sent: the part that goes, and the task."""

from langgraph.runtime import Runtime

from interlock.nodes._ask_text import Request, Told, ask_text
from interlock.nodes.compress._sizes import tokens_of
from interlock.nodes.compress._split import opening_length
from interlock.prompts import load
from interlock.state.deps import Deps
from interlock.state.messages import Message, curated

_TIMEOUT_S = 300.0
"""Seconds; a window half full takes a while to read."""
_ATTEMPTS = 3


async def ask(
    head: str, base: str, split: int, limit: int, task: list[Message], runtime: Runtime[Deps]
) -> Told:
    """The part that goes is sent as it was, if it fits the window, else with its older outputs shortened."""
    transcript = runtime.context.transcript
    messages = transcript.read(head)
    if tokens_of(messages[:split]) > limit:
        messages = transcript.read(base)
    part = curated(messages[opening_length(messages) : split])
    system = Message(role="system", content=load("compress/system").text())
    return await ask_text(
        Request(
            role="compressor",
            messages=[system, *part, *task],
            head=base,
            timeout_s=_TIMEOUT_S,
            attempts=_ATTEMPTS,
        ),
        runtime,
    )
