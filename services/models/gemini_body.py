"""gemini_body: a conversation as Gemini's JSON: what a request says besides its options.

Each message is converted and encoded once: the client would do it for every request, 0.3–0.4 ms each.
"""

import json
from collections.abc import Sequence
from typing import Any

from interlock.services.models.request import OWN_ID, MessageCache, ModelRequest, ToolsCache, base64_data
from interlock.state.messages import DataPart, Message, TextPart, ToolCall, ToolDeclaration

Json = dict[str, Any]
NO_SIGNATURE = "skip_thought_signature_validator"
"""Accepted by Gemini 3 for calls made by another model or a person (Google's documentation of thought signatures)."""
_UNSIGNED = ("gemini-1", "gemini-2", "gemma", "learnlm")
"""Families that require no signature."""


class GeminiBody:
    """Builds the `contents`, `systemInstruction` and `tools` of a request."""

    def __init__(self, model: str) -> None:
        self._signed = not model.startswith(_UNSIGNED)
        self._parts = MessageCache(_message_parts)
        self._tools = ToolsCache(_declare_tools)

    def __call__(self, request: ModelRequest) -> Json:
        system = [m for m in request.messages if m.role == "system"]
        rest = [m for m in request.messages if m.role != "system"]
        body: Json = {"contents": self._merge_contents(rest)}
        if system:
            body["systemInstruction"] = {"parts": [{"text": m.text} for m in system]}
        if request.feature == "web":
            body["tools"] = [{"googleSearch": {}}]
        elif request.tools:
            body["tools"] = [self._tools(request.tools)]
        return body

    def _merge_contents(self, messages: Sequence[Message]) -> list[Json]:
        """Merge neighbours of one role: Gemini's roles must alternate, and answers directly follow their calls."""
        contents: list[Json] = []
        unsigned_from = _turn_start(messages) if self._signed else len(messages)
        for index, (message, parts) in enumerate(zip(messages, self._parts(messages), strict=True)):
            if not parts:
                continue
            if index > unsigned_from and message.role == "assistant":
                parts = _sign_first_call(parts)
            role = "model" if message.role == "assistant" else "user"
            if contents and contents[-1]["role"] == role:
                contents[-1]["parts"] = [*contents[-1]["parts"], *parts]
            else:
                contents.append({"role": role, "parts": parts})
        return contents


class BodyEncoder:
    """Encodes a body as JSON, caching the last one's parts: the client would encode all of it for each request."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Json, bytes]] = {}
        self._rest: tuple[Json, bytes] = ({}, b"")

    def __call__(self, body: Json) -> bytes:
        """Return the value of `contents`, with the other fields after it."""
        found = [self._encode_content(content) for content in body["contents"]]
        self._known = {id(content["parts"]): (content, encoded) for content, encoded in found}
        rest = {name: value for name, value in body.items() if name != "contents"}
        if rest != self._rest[0]:
            self._rest = (rest, b", " + json.dumps(rest).encode()[1:-1] if rest else b"")
        return b"[%b]%b" % (b", ".join([encoded for _, encoded in found]), self._rest[1])

    def _encode_content(self, content: Json) -> tuple[Json, bytes]:
        known = self._known.get(id(content["parts"]))
        if known and known[0]["parts"] is content["parts"]:
            return known
        return content, json.dumps(content).encode()


def _declare_tools(tools: Sequence[ToolDeclaration]) -> Json:
    declared = [
        {"name": t.name, "description": t.description, "parametersJsonSchema": t.parameters} for t in tools
    ]
    return {"functionDeclarations": declared}


def _turn_start(messages: Sequence[Message]) -> int:
    """Return the index of the user message that began this turn: after it, the first call of every answer needs a
    signature. A user message that follows a tool's answer is sent in the same content, so it begins no turn."""
    asked = (i for i, m in enumerate(messages) if m.role == "user" and not m.is_empty)
    return max((i for i in asked if i == 0 or messages[i - 1].role != "tool"), default=-1)


def _sign_first_call(parts: list[Json]) -> list[Json]:
    """Return the parts with a signature on the first call."""
    first = next((i for i, part in enumerate(parts) if "functionCall" in part), None)
    if first is None or "thoughtSignature" in parts[first]:
        return parts
    return [*parts[:first], {**parts[first], "thoughtSignature": NO_SIGNATURE}, *parts[first + 1 :]]


def _message_parts(message: Message) -> list[Json]:
    """Convert a message. Thoughts aren't sent back, but their signatures are."""
    if message.role == "tool":
        return _answer_parts(message)
    content = message.content
    pieces = (TextPart(text=content),) if isinstance(content, str) else content
    parts = [_content_part(piece) for piece in pieces if not isinstance(piece, TextPart) or piece.text]
    if message.signature:
        if not parts or "text" not in parts[-1]:
            parts.append({"text": ""})
        parts[-1]["thoughtSignature"] = message.signature
    return [*parts, *(_call_part(call) for call in message.tool_calls)]


def _call_part(call: ToolCall) -> Json:
    part: Json = {"functionCall": {"name": call.name, "args": call.args, **_id_field(call.id)}}
    if call.signature:
        part["thoughtSignature"] = call.signature
    return part


def _answer_parts(message: Message) -> list[Json]:
    """Send the text verbatim: the client would parse what looks like JSON and change it."""
    key = "output" if message.status in (None, "success") else "error"
    response: Json = {
        "name": message.name or "",
        "response": {key: message.text},
        **_id_field(message.tool_call_id),
    }
    data = () if isinstance(message.content, str) else message.content
    return [{"functionResponse": response}, *(_content_part(p) for p in data if isinstance(p, DataPart))]


def _id_field(call_id: str | None) -> Json:
    """Send back only ids assigned by Gemini."""
    return {} if not call_id or OWN_ID.fullmatch(call_id) else {"id": call_id}


def _content_part(part: TextPart | DataPart) -> Json:
    if isinstance(part, TextPart):
        return {"text": part.text}
    return {"inlineData": {"mimeType": part.mime_type, "data": base64_data(part)}}
