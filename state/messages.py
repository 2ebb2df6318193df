"""messages: the conversation's own records. Only `services/models` knows a provider's classes."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, SerializerFunctionWrapHandler, model_serializer

Role = Literal["system", "user", "assistant", "tool"]
Origin = Literal["person", "context", "hook", "nudge", "continue", "agent", "snapshot"]
"""Who wrote a user message; `snapshot`: `compress`, in place of what it dropped."""
ToolStatus = Literal["success", "error", "cancelled"]


class Frozen(BaseModel):
    """Immutable, and closed: an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class TextPart(Frozen):
    """Plain text."""

    type: Literal["text"] = "text"
    text: str
    section: str | None = None
    """What it is called, in a message of ours that is made of sections."""

    @model_serializer(mode="wrap")
    def _with_type(self, handler: SerializerFunctionWrapHandler) -> dict[str, JsonValue]:
        """Also where defaults are left out: by its type a part is read."""
        return {"type": "text", **handler(self)}


class DataPart(Frozen):
    """An image or another file: `data` is base64, `path` a file in the workspace; exactly one of them."""

    type: Literal["image", "file"]
    mime_type: str
    data: str | None = None
    path: str | None = None


Part = Annotated[TextPart | DataPart, Field(discriminator="type")]


class ToolCall(Frozen):
    """One call that a model asked for. `args` keep the order in which they were given."""

    id: str
    name: str
    args: dict[str, JsonValue] = {}
    signature: str | None = None
    """The provider's thought signature (base64); must be sent back unchanged."""


class Message(Frozen):
    """One record of the chain. At the door it is a dict of the same shape."""

    role: Role
    content: str | tuple[Part, ...] = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None
    """The tool's name, in tool messages."""
    status: ToolStatus | None = None
    """How the call ended, in tool messages."""
    origin: Origin | None = None
    """Who wrote a user message, when it wasn't the person: texts of ours are never shown as the person's words."""
    thought: str | None = None
    signature: str | None = None
    """Thought signature of a message without calls (base64)."""

    @property
    def text(self) -> str:
        """All text parts, joined."""
        if isinstance(self.content, str):
            return self.content
        return "".join(p.text for p in self.content if isinstance(p, TextPart))

    @property
    def is_empty(self) -> bool:
        """No visible text, no data and no calls."""
        return not self.tool_calls and not self.content


def curated(history: list[Message]) -> list[Message]:
    """What models are sent: without runs of assistant messages that have an empty one among them."""
    kept: list[Message] = []
    run: list[Message] = []
    for message in [*history, None]:
        if message is not None and message.role == "assistant":
            run.append(message)
            continue
        if not any(m.is_empty for m in run):
            kept.extend(run)
        run = []
        if message is not None:
            kept.append(message)
    return kept


def open_calls(history: list[Message]) -> list[ToolCall]:
    """Calls without an answer, in order. Empty before every model request: that is the invariant."""
    answered = {m.tool_call_id for m in history if m.role == "tool"}
    return [c for m in history for c in m.tool_calls if c.id not in answered]


def estimate_message(message: Message) -> int:
    """Estimated tokens of one message, calls included; 3,000 for an image, 25,800 for another file."""
    from interlock.state.text import estimate_tokens

    data = 0
    if not isinstance(message.content, str):
        data = sum(3000 if p.type == "image" else 25_800 for p in message.content if isinstance(p, DataPart))
    calls = "".join(c.name + str(c.args) for c in message.tool_calls)
    return estimate_tokens(message.text) + estimate_tokens(calls) + data
