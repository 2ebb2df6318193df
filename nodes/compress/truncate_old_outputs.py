"""truncate_old_outputs: older tool outputs become files and their last lines."""

import asyncio

from langgraph.runtime import Runtime
from typing_extensions import TypedDict

from interlock.nodes.compress._sizes import AttemptIn, is_attempt
from interlock.prompts import load
from interlock.state.compress import KEPT_LINES, KEPT_OUTPUT_TOKENS
from interlock.state.deps import Deps
from interlock.state.messages import Message
from interlock.state.text import estimate_tokens


class TruncateOldOutputsIn(AttemptIn, total=False):
    head: str


class TruncateOldOutputsOut(TypedDict, total=False):
    base: str
    label: str


async def truncate_old_outputs(state: TruncateOldOutputsIn, runtime: Runtime[Deps]) -> TruncateOldOutputsOut:
    """The newest 50,000 tokens of output stay whole. After a failed attempt this is all that is done for now."""
    deps = runtime.context
    messages = deps.transcript.read(state["head"])
    room = KEPT_OUTPUT_TOKENS
    shorter: dict[int, Message] = {}
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        if message.role != "tool":
            continue
        tokens = estimate_tokens(message.text)
        if tokens <= room:
            room -= tokens
        elif short := await _shortened(message, deps):
            shorter[index] = short
    base = state["head"]
    if shorter:
        replaced = [shorter.get(i, m) for i, m in enumerate(messages)]
        base = deps.transcript.append("", replaced, continues=state["head"])
    return {"base": base, "label": "attempt" if is_attempt(state) else "failed before"}


async def _shortened(message: Message, deps: Deps) -> Message | None:
    """None: it wouldn't be shorter. The file is on the disk before anything names it."""
    lines = message.text.splitlines()[-KEPT_LINES:]
    end = "\n".join(lines)[-deps.settings.tools.truncate_at :]
    if len(end) >= len(message.text) or message.text.startswith("[Older output, shortened:"):
        return None
    path = await asyncio.to_thread(deps.outputs.save, message.text.encode())
    text = load("compress/old_output").text(path=str(path), lines=str(len(lines)), end=end)
    if len(text) >= len(message.text):
        return None
    return message.model_copy(update={"content": text})
