"""gemini_body: our records as Gemini's REST bodies; each record is converted once."""

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from interlock.services.models.answer import OWN_ID
from interlock.services.models.memo import PerMessage
from interlock.services.models.request import Request
from interlock.state.messages import DataPart, Message, TextPart, ToolCall
from interlock.state.models import ToolDeclaration

Json = dict[str, Any]
NO_SIGNATURE = "skip_thought_signature_validator"
"""What Gemini 3 takes for a call that another model or a person made (Google's documentation of thought signatures)."""
_UNSIGNED = ("gemini-1", "gemini-2", "gemma", "learnlm")
"""Families that ask for no signature."""


class _Shared(dict[str, Any]):
    """JSON that the client reads but doesn't change: its deep copies of a request share it."""

    def __deepcopy__(self, memo: object) -> "_Shared":
        return self


class GeminiBody:
    """`contents`, `systemInstruction` and `tools` of a request."""

    def __init__(self, model: str) -> None:
        self._signed = not model.startswith(_UNSIGNED)
        self._parts = PerMessage(_parts)
        self._tools: tuple[Sequence[ToolDeclaration], _Shared] | None = None

    def __call__(self, request: Request) -> Json:
        system = [m for m in request.messages if m.role == "system"]
        rest = [m for m in request.messages if m.role != "system"]
        body: Json = {"contents": self._contents(rest)}
        if system:
            body["systemInstruction"] = _Shared(parts=[{"text": m.text} for m in system])
        if request.tools:
            body["tools"] = [self._declared(request.tools)]
        return body

    def _contents(self, messages: Sequence[Message]) -> list[_Shared]:
        """Neighbours of one role are one content: Gemini's roles alternate, and answers follow their calls at once."""
        contents: list[_Shared] = []
        unsigned_from = _last_question(messages) if self._signed else len(messages)
        for index, (message, parts) in enumerate(zip(messages, self._parts(messages), strict=True)):
            if not parts:
                continue
            if index > unsigned_from and message.role == "assistant":
                parts = _marked(parts)
            role = "model" if message.role == "assistant" else "user"
            if contents and contents[-1]["role"] == role:
                contents[-1]["parts"] = [*contents[-1]["parts"], *parts]
            else:
                contents.append(_Shared(role=role, parts=parts))
        return contents

    def _declared(self, tools: Sequence[ToolDeclaration]) -> _Shared:
        if self._tools is None or self._tools[0] != tools:
            declared = [
                {"name": t.name, "description": t.description, "parametersJsonSchema": t.parameters}
                for t in tools
            ]
            self._tools = (tools, _Shared(functionDeclarations=declared))
        return self._tools[1]


def _last_question(messages: Sequence[Message]) -> int:
    """Index of the user message that began this turn: after it every first call of an answer needs a signature.

    One that follows a tool's answer is sent in the same content, so it begins nothing.
    """
    asked = (i for i, m in enumerate(messages) if m.role == "user" and not m.is_empty)
    return max((i for i in asked if i == 0 or messages[i - 1].role != "tool"), default=-1)


def _marked(parts: list[Json]) -> list[Json]:
    """The parts, their first call signed."""
    first = next((i for i, part in enumerate(parts) if "functionCall" in part), None)
    if first is None or "thoughtSignature" in parts[first]:
        return parts
    return [*parts[:first], {**parts[first], "thoughtSignature": NO_SIGNATURE}, *parts[first + 1 :]]


def _parts(message: Message) -> list[Json]:
    """Thoughts aren't sent back, their signatures are."""
    if message.role == "tool":
        return _answer(message)
    content = message.content
    pieces = (TextPart(text=content),) if isinstance(content, str) else content
    parts = [_text_or_data(piece) for piece in pieces if not isinstance(piece, TextPart) or piece.text]
    if message.signature:
        if not parts or "text" not in parts[-1]:
            parts.append({"text": ""})
        parts[-1]["thoughtSignature"] = message.signature
    return [*parts, *(_call(call) for call in message.tool_calls)]


def _call(call: ToolCall) -> Json:
    part: Json = {"functionCall": {"name": call.name, "args": call.args, **_id(call.id)}}
    if call.signature:
        part["thoughtSignature"] = call.signature
    return part


def _answer(message: Message) -> list[Json]:
    """The text as it is: the client would parse what looks like JSON and send the model something else."""
    key = "output" if message.status in (None, "success") else "error"
    response: Json = {
        "name": message.name or "",
        "response": {key: message.text},
        **_id(message.tool_call_id),
    }
    data = () if isinstance(message.content, str) else message.content
    return [{"functionResponse": response}, *(_text_or_data(p) for p in data if isinstance(p, DataPart))]


def _id(call_id: str | None) -> Json:
    """Only ids that Gemini gave are told to it."""
    return {} if not call_id or OWN_ID.fullmatch(call_id) else {"id": call_id}


def _text_or_data(part: TextPart | DataPart) -> Json:
    if isinstance(part, TextPart):
        return {"text": part.text}
    data = (
        part.data if part.data is not None else base64.b64encode(Path(part.path or "").read_bytes()).decode()
    )
    return {"inlineData": {"mimeType": part.mime_type, "data": data}}
