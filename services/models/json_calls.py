"""json_calls: a conversation in which calls are JSON: what the model is told, and its answer as it streams."""

import json
import re
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from dataclasses import replace

from interlock.prompts import render
from interlock.services.models.request import CallPiece, Chunk
from interlock.state.messages import Message, TextPart, ToolDeclaration
from interlock.tools._json_calls import JsonCall, as_call, loaded, read_calls, signature
from interlock.tools._json_schema import ends_with

_DONE = '{"text": "..."}, with what you did or found.'


def explained(messages: Sequence[Message], tools: Sequence[ToolDeclaration]) -> list[Message]:
    """The messages with the tools and how to call them after the system prompt, which so stays a fixed beginning."""
    last = ends_with(tools)
    end = f"When all is done, call {last}." if last else f"When all is done, answer {_DONE}"
    text = render("run/json_calls", tools="\n".join(map(signature, tools)), end=end)
    first = messages[0] if messages and messages[0].role == "system" else None
    before = f"{first.text}\n\n" if first else ""
    return [Message(role="system", content=(TextPart(text=before + text),)), *messages[1 if first else 0 :]]


_TEXT = re.compile(r'\s*\{\s*"text"\s*:\s*"((?:[^"\\]|\\(?:[^u]|u[0-9a-fA-F]{4}))*)')
_HIGH_ESCAPE = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}$")
_HABIT = re.compile(r"^[ \t]*(?:```|\{|<tool_call>)", re.MULTILINE)
"""What a call may begin with that a model writes by habit."""
_BEGUN = re.compile(r"^[ \t]*(?:`{1,2}|<[a-z_]*)\Z", re.MULTILINE)
"""The end of a text that may become one."""


async def constrained(
    pieces: AsyncGenerator[Chunk, None], tools: Sequence[ToolDeclaration]
) -> AsyncGenerator[Chunk, None]:
    """Stream the object's `text`, and yield its call at the end. An answer that is no such object is read by habit."""
    whole, shown, cut = "", 0, False
    async with aclosing(pieces):
        async for chunk in pieces:
            cut = cut or chunk.finish_reason == "length"
            whole += chunk.text
            ready = _begun(whole)
            yield replace(chunk, text=ready[shown:])
            shown = max(shown, len(ready))
    found = loaded(whole)
    if found is None or not {"call", "text"} & found.keys():
        rest, calls = (whole[shown:], ()) if shown else read_calls(whole, tools)
        if cut or (shown and not calls):
            yield Chunk(
                finish_reason="malformed_function_call", problem="the answer ended inside its JSON object"
            )
            return
        yield Chunk(text=rest, calls=_pieces(calls))
        return
    call = as_call(found.get("call"), {tool.name for tool in tools})
    yield Chunk(text=str(found.get("text", ""))[shown:], calls=_pieces([call] if call else ()))


def _begun(whole: str) -> str:
    """The text of an object that is still being written."""
    match = _TEXT.match(whole)
    if match is None:
        return ""
    text = match[1]
    if half := _HIGH_ESCAPE.search(text):
        text = text[: half.start()]
    return json.loads(f'"{text}"', strict=False)


async def by_habit(
    pieces: AsyncGenerator[Chunk, None], tools: Sequence[ToolDeclaration]
) -> AsyncGenerator[Chunk, None]:
    """Take fenced or bare JSON calls out of the text; what may be one is held until the end."""
    whole, shown, native = "", 0, False
    async with aclosing(pieces):
        async for chunk in pieces:
            native, whole = native or bool(chunk.calls), whole + chunk.text
            line = whole.rfind("\n", 0, shown) + 1
            begin = _HABIT.search(whole, line) or _BEGUN.search(whole, line)
            ready = begin.start() if begin else len(whole)
            yield replace(chunk, text=whole[shown:ready])
            shown = max(shown, ready)
    held = whole[shown:]
    text, calls = (held, ()) if native else read_calls(held, tools)
    yield Chunk(text=text, calls=_pieces(calls))


def _pieces(calls: Iterable[JsonCall]) -> tuple[CallPiece, ...]:
    return tuple(CallPiece(name=name, args=args, how="json") for name, args in calls)
