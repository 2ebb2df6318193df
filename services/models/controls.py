"""controls: control characters in a request, spelled out as on the screen.

Some servers refuse them, and with them every later request of the conversation.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, cast

from interlock.state.messages import Message, TextPart, ToolDeclaration
from interlock.state.text import spell_controls

T = TypeVar("T")


def spell_message_controls(message: Message) -> Message:
    """Return the message with control characters spelled out; the same object if there are none."""
    content: Any = message.content
    if isinstance(content, str):
        content = spell_controls(content)
    else:
        content = tuple(
            p.model_copy(update={"text": spell_controls(p.text)}) if isinstance(p, TextPart) else p
            for p in message.content
            if not isinstance(p, str)
        )
    calls = tuple(c.model_copy(update={"args": _spell_value_controls(c.args)}) for c in message.tool_calls)
    thought = spell_controls(message.thought) if message.thought else message.thought
    made = {"content": content, "tool_calls": calls, "thought": thought}
    changes = {name: value for name, value in made.items() if value != getattr(message, name)}
    return message.model_copy(update=changes) if changes else message


def spell_tool_controls(tools: Sequence[ToolDeclaration]) -> Sequence[ToolDeclaration]:
    """Return the declarations with control characters spelled out: those of MCP servers are others' texts."""
    made = [
        t.model_copy(
            update={
                "description": spell_controls(t.description),
                "parameters": _spell_value_controls(t.parameters),
            }
        )
        for t in tools
    ]
    return made if any(a != b for a, b in zip(made, tools, strict=True)) else tools


def _spell_value_controls(value: T) -> T:
    made: Any = value
    if isinstance(value, str):
        made = spell_controls(value)
    elif isinstance(value, Mapping):
        pairs = cast("Mapping[str, Any]", value).items()
        made = {spell_controls(name): _spell_value_controls(item) for name, item in pairs}
    elif isinstance(value, list):
        made = [_spell_value_controls(item) for item in cast("list[Any]", value)]
    return made
