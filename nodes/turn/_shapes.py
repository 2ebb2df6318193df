"""_shapes: requests and answers as hooks read them: gemini-cli's shape, with the calls that it leaves out."""

from pydantic import JsonValue

from interlock.nodes.turn._request import Request
from interlock.state.messages import DataPart, Message, ToolCall

_ROLES = {"system": "system", "user": "user", "assistant": "model", "tool": "tool"}
"""Ours → a hook's."""


def shown_request(request: Request) -> dict[str, JsonValue]:
    """Bytes of images and files stay out; the temperature is there where something other than the default is set."""
    shown: dict[str, JsonValue] = {
        "model": request.model,
        "messages": [*map(shown_message, request.messages)],
        "tools": [t.name for t in request.tools],
    }
    if request.temperature is not None:
        shown["config"] = {"temperature": request.temperature}
    return shown


def shown_message(message: Message) -> dict[str, JsonValue]:
    """`content` is the text; a list of parts where there is more than text."""
    shown: dict[str, JsonValue] = {"role": _ROLES[message.role], "content": _content(message)}
    if message.tool_calls:
        shown["tool_calls"] = [_call(c) for c in message.tool_calls]
    if message.role == "tool":
        shown |= {"tool_call_id": message.tool_call_id, "name": message.name}
    return shown


def shown_answer(message: Message, finish_reason: str) -> dict[str, JsonValue]:
    content: JsonValue = {"role": "model", "parts": [message.text] if message.text else []}
    candidate: JsonValue = {"content": content, "finishReason": finish_reason.upper()}
    shown: dict[str, JsonValue] = {"text": message.text, "candidates": [candidate]}
    if message.tool_calls:
        shown["tool_calls"] = [_call(c) for c in message.tool_calls]
    return shown


def _content(message: Message) -> JsonValue:
    if isinstance(message.content, str):
        return message.content
    return [
        {"type": part.type, "mime_type": part.mime_type}
        if isinstance(part, DataPart)
        else {"type": "text", "text": part.text}
        for part in message.content
    ]


def _call(call: ToolCall) -> JsonValue:
    return {"id": call.id, "name": call.name, "args": call.args}
