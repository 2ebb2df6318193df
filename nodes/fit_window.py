"""fit_window: what a turn does when the conversation doesn't fit the model's context window, even compressed."""

import asyncio
import re
from collections.abc import Iterator, Sequence

from langgraph.runtime import Runtime

from interlock.nodes.compress_snapshot import count_tokens
from interlock.nodes.turn_messages import REQUEST, build_turn_request
from interlock.prompts import load_prompt
from interlock.state.deps import Deps
from interlock.state.messages import Message, ToolDeclaration
from interlock.state.node import node
from interlock.state.text import estimate_tokens, join_some
from interlock.state.turn import TurnState

_ROOM = 0.7
"""Share of the window that is filled at most once outputs were left out."""
_SPARED = 200
"""Tokens of an output up to which it stays."""
_NAMED = 3
_FILE = re.compile(r"^--- (.+?) \([^()\n]*\) ---\n.*?^--- end of \1 ---", re.M | re.S)
"""A memory file as `format_memory_file` writes it."""


@node(
    reads=(*REQUEST, "model", "overflows"),
    writes=("head", "last_prompt_tokens", "turn_status", "error"),
    labels=("shortened", "full"),
    group="errors",
)
async def fit_window(state: TurnState, runtime: Runtime[Deps]) -> TurnState:
    """Leave out the largest outputs until the rest fits; all of them, if the model refused what seemed to fit."""
    deps = runtime.context
    model = state.get("sticky_model") or deps.models.resolve(state["model"])
    limit = deps.models.context_window(model)
    messages = deps.transcript.read(state["head"])
    tools = (await build_turn_request(state, deps)).tools
    left = deps.models.scale_estimate(model, count_tokens(messages) + _count_tool_tokens(tools))
    refused_again = state.get("overflows", 0) > 1
    changed = False
    for index in _largest_outputs(messages):
        if left <= _ROOM * limit and changed and not refused_again:
            break
        before = count_tokens([messages[index]])
        messages[index] = await _replace_output(messages[index], deps)
        left -= deps.models.scale_estimate(model, before - count_tokens([messages[index]]))
        changed = True
    if changed:
        head = deps.transcript.append("", messages, continues=state["head"])
        fitted: TurnState = {"head": head, "last_prompt_tokens": 0, "turn_status": "", "error": {}}
        return {**fitted, "label": "shortened"}
    message = _explain_overflow(model, limit, messages, tools, deps)
    error = {"type": "context_overflow", "message": message}
    # The next prompt is tried: its window, its instructions or what it asks may have changed.
    return {"label": "full", "turn_status": "context_overflow", "error": error, "last_prompt_tokens": 0}


def _largest_outputs(messages: Sequence[Message]) -> list[int]:
    sizes = {i: count_tokens([m]) for i, m in enumerate(messages) if m.role == "tool"}
    return sorted((i for i, size in sizes.items() if size > _SPARED), key=lambda i: (-sizes[i], i))


async def _replace_output(message: Message, deps: Deps) -> Message:
    """The file is on disk before anything refers to it."""
    path = await asyncio.to_thread(deps.outputs.save, message.text.encode())
    text = load_prompt("run/output_left_out").text(characters=f"{len(message.text):,}", path=str(path))
    return message.model_copy(update={"content": text})


def _count_tool_tokens(tools: Sequence[ToolDeclaration]) -> int:
    return sum(estimate_tokens(f"{t.name}{t.description}{t.parameters}") for t in tools)


def _explain_overflow(
    model: str, limit: int, messages: Sequence[Message], tools: Sequence[ToolDeclaration], deps: Deps
) -> str:
    """Say what fills the window, the largest first, and what to do about it."""
    shares: dict[str, int] = {}
    for name, tokens in [*_token_shares(messages), ("the declarations of tools", _count_tool_tokens(tools))]:
        shares[name] = shares.get(name, 0) + deps.models.scale_estimate(model, tokens)
    largest = sorted(shares, key=lambda name: -shares[name])
    filling = join_some([f"{name} ({shares[name]:,} tokens)" for name in largest if shares[name]], _NAMED)
    return (
        f"The request has about {sum(shares.values()):,} tokens, {model!r} takes {limit:,}. "
        f"It is filled by {filling}. Shorten {largest[0]}, or choose a model with a larger window (-m)."
    )


def _token_shares(messages: Sequence[Message]) -> Iterator[tuple[str, int]]:
    """Yield each part of the conversation with its plain estimate, files of instructions by name."""
    asked = max(
        (i for i, m in enumerate(messages) if m.role == "user" and m.origin in (None, "person")), default=-1
    )
    for index, message in enumerate(messages):
        whole = count_tokens([message])
        for file in _FILE.finditer(message.text) if message.origin == "context" else ():
            tokens = estimate_tokens(file[0])
            whole -= tokens
            yield file[1], tokens
        if message.role == "system":
            yield "the system prompt", whole
        elif message.origin == "context":
            yield "the context of the workspace", whole
        else:
            yield "the prompt" if index == asked else "the conversation", whole
