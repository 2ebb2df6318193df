"""json_calls: a conversation in which calls are JSON: what the model is told, and its answer as it streams."""

import json
import re
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import PurePath

from interlock.prompts import render_prompt
from interlock.services.models.request import Chunk, ParsedCall
from interlock.state.messages import Message, TextPart, ToolDeclaration
from interlock.tools.call_arguments import normalize_argument_names
from interlock.tools.json_calls import (
    MOST_LINES,
    WRITES,
    AllowedWrites,
    JsonCall,
    ModelKnowledge,
    find_completion_tool_name,
    parse_call_object,
    parse_json_object,
    split_json_calls,
    tool_signature_and_description,
)

_DONE = '{"text": "..."}, with what you did or found.'


def with_json_call_rules(messages: Sequence[Message], tools: Sequence[ToolDeclaration]) -> list[Message]:
    """Return the messages with the tools and how to call them after the system prompt, which so stays a fixed
    beginning."""
    last = find_completion_tool_name(tools)
    end = f"When all is done, call {last}." if last else f"When all is done, answer {_DONE}"
    text = render_prompt(
        "run/json_calls", tools="\n".join(map(tool_signature_and_description, tools)), end=end
    )
    first = messages[0] if messages and messages[0].role == "system" else None
    before = f"{first.text}\n\n" if first else ""
    return [Message(role="system", content=(TextPart(text=before + text),)), *messages[1 if first else 0 :]]


_WRITER = "You are a careful programmer."
"""Under the agent's own rules a 1.5B model made one of three repairs, under this line all three."""
_BLOCK = re.compile(r"^```[^`\n]*\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)
_OUTERMOST = re.compile(r"^```[^`\n]*\n(.*)^```[ \t]*$", re.MULTILINE | re.DOTALL)
_HAS_BLOCKS = frozenset({".md", ".mdx", ".markdown"})
"""Files with code blocks of their own."""
_TEXT = re.compile(r'\s*\{\s*"text"\s*:\s*"((?:[^"\\]|\\(?:[^u]|u[0-9a-fA-F]{4}))*)')
_HIGH_ESCAPE = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}$")
_HABIT = re.compile(r"^[ \t]*(?:```|\{|<tool_call>)", re.MULTILINE)
"""What a call may begin with that a model writes by habit."""
_BEGUN = re.compile(r"^[ \t]*(?:`{1,2}|<[a-z_]*)\Z", re.MULTILINE)
"""The end of a text that may become one."""


async def extract_json_calls(
    pieces: AsyncGenerator[Chunk, None],
    tools: Sequence[ToolDeclaration],
    request_file: Callable[[str, str], AsyncGenerator[Chunk, None]],
    allowed: AllowedWrites,
) -> AsyncGenerator[Chunk, None]:
    """Stream the object's `text`, and yield its call at the end. An answer that is no such object is read by habit.

    `request_file(path, text)` asks for a file that a call names, which is its `content`. A call that names a test is
    about what it tests.
    """
    whole, shown, cut = "", 0, False
    async with aclosing(pieces):
        async for chunk in pieces:
            cut = cut or chunk.finish_reason == "length"
            whole += chunk.text
            ready = _parse_partial_text_field(whole)
            yield replace(chunk, text=ready[shown:])
            shown = max(shown, len(ready))
    found = parse_json_object(whole)
    if found is None or not {"call", "text"} & found.keys():
        rest, calls = (whole[shown:], ()) if shown else split_json_calls(whole, tools)
        if cut or (shown and not calls):
            yield Chunk(
                finish_reason="malformed_function_call", problem="the answer ended inside its JSON object"
            )
            return
        yield Chunk(text=rest, calls=_to_parsed_calls(calls))
        return
    call = parse_call_object(found.get("call"), {tool.name for tool in tools})
    text = str(found.get("text", ""))
    yield Chunk(text=text[shown:])
    name, args = (call[0], normalize_argument_names(*call)) if call else ("", {})
    where, what = WRITES.get(name, ("", ""))
    if where in args and allowed.is_protected(str(args[where])):
        if not allowed.paths:
            problem = f"{args[where]} is a test, and the task is to repair what it tests: read that file, and write it"
            yield Chunk(finish_reason="malformed_function_call", problem=problem)
            return
        args = {where: allowed.paths[0]}
    if where in args and what not in args:
        block = _OUTERMOST if PurePath(str(args[where])).suffix.lower() in _HAS_BLOCKS else _BLOCK
        async for chunk in _stream_file_call(request_file(str(args[where]), text), (name, args), what, block):
            yield chunk
    else:
        yield Chunk(calls=_to_parsed_calls([(name, args)] if call else ()))


def build_file_writing_prompt(path: str, text: str, messages: Sequence[Message]) -> list[Message]:
    """Return the request for the whole of a file: the task, the files and the last output, as code and without the
    calls."""
    seen = ModelKnowledge(messages)
    said = [m.text for m in messages if m.role == "user" and m.origin in ("person", "agent")]
    if messages[-1].role == "user" and messages[-1].origin not in ("person", "agent"):
        said.append(messages[-1].text)
    known = {path: seen.files.get(path), **seen.files}
    files = [
        f"{name}:\n{_fence_code(content, PurePath(name).suffix[1:])}"
        for name, content in known.items()
        if content is not None and content.count("\n") < MOST_LINES
    ]
    command, printed = seen.last_output or ("", "")
    output = f"Output of `{command}`:\n{_fence_code(printed)}" if command else ""
    asked = render_prompt(
        "run/write_file",
        task="\n\n".join([*said, text] if text else said),
        files="".join(files),
        output=output,
        path=path,
    )
    return [Message(role="system", content=_WRITER), Message(role="user", content=asked)]


def _fence_code(text: str, language: str = "") -> str:
    marks = "`" * (3 + text.count("```"))
    return f"{marks}{language}\n{text.rstrip()}\n{marks}\n\n"


async def _stream_file_call(
    pieces: AsyncGenerator[Chunk, None], call: JsonCall, content_field: str, block_pattern: re.Pattern[str]
) -> AsyncGenerator[Chunk, None]:
    """Stream the explanation; the last code block is the file."""
    whole, shown, cut = "", 0, False
    async with aclosing(pieces):
        async for chunk in pieces:
            cut = cut or chunk.finish_reason == "length"
            whole += chunk.text
            fence = whole.find("```")
            ready = fence if fence >= 0 else len(whole.rstrip("`"))
            yield replace(chunk, text=whole[shown:ready])
            shown = max(shown, ready)
    blocks = block_pattern.findall(whole)
    if cut or not blocks:
        yield Chunk(finish_reason="malformed_function_call", problem="the file's text isn't in a code block")
        return
    yield Chunk(calls=_to_parsed_calls([(call[0], {**call[1], content_field: blocks[-1]})]))


def _parse_partial_text_field(partial_json: str) -> str:
    """Return the text of an object that is still being written."""
    match = _TEXT.match(partial_json)
    if match is None:
        return ""
    text = match[1]
    if half := _HIGH_ESCAPE.search(text):
        text = text[: half.start()]
    return json.loads(f'"{text}"', strict=False)


async def extract_fenced_or_bare_calls(
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
    text, calls = (held, ()) if native else split_json_calls(held, tools)
    yield Chunk(text=text, calls=_to_parsed_calls(calls))


def _to_parsed_calls(calls: Iterable[JsonCall]) -> tuple[ParsedCall, ...]:
    return tuple(ParsedCall(name=name, args=args, how="json") for name, args in calls)
