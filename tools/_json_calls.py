"""_json_calls: calls as JSON in a model's text: one object a message, or what models write by habit.

The object has a `call`, and `text` beside it if the model likes; or only `text`, the answer.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from interlock.state.messages import Message, ToolCall, ToolDeclaration
from interlock.state.names import WAIT
from interlock.tools._json_schema import WRITES
from interlock.tools._tags import as_text

JsonCall = tuple[str, dict[str, Any]]
"""Tool and arguments."""


def signature(tool: ToolDeclaration) -> str:
    """`- name(file_path: string, limit?: integer): what it does`."""
    required = tool.parameters.get("required", ())
    properties: Mapping[str, Any] = tool.parameters.get("properties", {})
    left_out = (WAIT, *WRITES.get(tool.name, ("", ""))[1:])
    listed = ", ".join(
        f"{name}{'' if name in required else '?'}: {_kind(schema)}"
        for name, schema in properties.items()
        if name not in left_out
    )
    return f"- {tool.name}({listed}): {tool.description}"


def _kind(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return " | ".join(map(str, schema["enum"]))
    kind = str(schema.get("type", "any"))
    return f"[{_kind(schema.get('items', {}))}]" if kind == "array" else kind


def as_json(message: Message) -> Message:
    """A message as the model itself writes it: an object with its call; results are texts of the user's."""
    if message.role != "assistant":
        return as_text(message)
    objects = [
        _object(message.text if not index else "", call) for index, call in enumerate(message.tool_calls)
    ]
    text = "\n".join(objects or [_object(message.text, None)])
    return message.model_copy(update={"content": text, "tool_calls": (), "signature": None})


def _object(text: str, call: ToolCall | None) -> str:
    made = {"call": {"name": call.name, "args": call.args}} if call else {}
    said = {"text": text} if text or not call else {}
    return json.dumps({**made, **said}, ensure_ascii=False)


_FENCED = re.compile(r"```\w*\s*\n(.*?)\n?[ \t]*```|<tool_call>(.*?)(?:</tool_call>|$)", re.DOTALL)


def read_calls(text: str, tools: Sequence[ToolDeclaration]) -> tuple[str, tuple[JsonCall, ...]]:
    """Separate a text from the calls in it: the whole of it, or each in a fence."""
    names = {tool.name for tool in tools}
    if bare := as_call(loaded(text), names):
        return "", (bare,)
    calls: list[JsonCall] = []

    def taken(match: re.Match[str]) -> str:
        call = as_call(loaded(match[1] or match[2] or ""), names)
        if call is None:
            return match[0]
        calls.append(call)
        return ""

    rest = _FENCED.sub(taken, text)
    return (rest.strip() if calls else rest), tuple(calls)


def loaded(text: str) -> dict[str, Any] | None:
    try:
        found = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return None
    return cast(dict[str, Any], found) if isinstance(found, dict) else None


def as_call(value: Any, names: set[str]) -> JsonCall | None:
    """`{"name": …, "args" | "arguments" | "parameters": {…}}`, also inside `function` or `call`."""
    if not isinstance(value, dict):
        return None
    found = cast(dict[str, Any], value)
    inner = found.get("function", found.get("call"))
    if isinstance(inner, dict):
        found = cast(dict[str, Any], inner)
    name = found.get("name", found.get("tool"))
    args = next((found[key] for key in ("args", "arguments", "parameters", "input") if key in found), None)
    args = loaded(args) if isinstance(args, str) else args
    if not isinstance(name, str) or name not in names or not isinstance(args, dict):
        return None
    return name, cast(dict[str, Any], args)
