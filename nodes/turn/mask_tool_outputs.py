"""mask_tool_outputs: move older tool outputs to files, when that frees enough."""

import asyncio

from langgraph.runtime import Runtime
from typing_extensions import TypedDict

from interlock.nodes.turn._masking import WORTH_TOKENS, gain, masked, older_outputs
from interlock.state.deps import Deps


class MaskToolOutputsIn(TypedDict, total=False):
    head: str


class MaskToolOutputsOut(TypedDict, total=False):
    head: str
    last_prompt_tokens: int


async def mask_tool_outputs(state: MaskToolOutputsIn, runtime: Runtime[Deps]) -> MaskToolOutputsOut:
    """A new chain that names the old. The request is estimated anew, because the provider's count is of the old one."""
    deps = runtime.context
    messages = deps.transcript.read(state["head"])
    indices = older_outputs(messages)
    if not indices or gain(messages, indices) < WORTH_TOKENS:
        return {}
    for index in indices:
        message = messages[index]
        path = await asyncio.to_thread(deps.outputs.save, message.text.encode())
        messages[index] = masked(message, str(path))
    return {"head": deps.transcript.append("", messages, continues=state["head"]), "last_prompt_tokens": 0}
