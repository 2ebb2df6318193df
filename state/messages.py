"""messages: the conversation's own records. Only `services/models` knows a provider's classes."""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Generic, Literal, Protocol, TypeVar
from weakref import WeakKeyDictionary

from pydantic import BaseModel, ConfigDict, Field, JsonValue, SerializerFunctionWrapHandler, model_serializer

from interlock.state.events import Emit

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


T = TypeVar("T")


class Growing(Generic[T]):
    """What is gathered of a history, message by message: of one that grew only the new ones are looked at.

    It is remembered for an owner, such as the transcript that the history comes from, as long as that lives.
    """

    def __init__(self, start: Callable[[], T], add: Callable[[T, Message], None]) -> None:
        self._start, self._add = start, add
        self._known: WeakKeyDictionary[object, tuple[list[Message], T]] = WeakKeyDictionary()

    def __call__(self, history: Sequence[Message], owner: object = None) -> T:
        """Not to be changed: it grows on."""
        seen, gathered = self._known.get(owner, ([], self._start())) if owner else ([], self._start())
        if seen != [*history[: len(seen)]]:
            seen, gathered = [], self._start()
        for message in history[len(seen) :]:
            self._add(gathered, message)
        if owner:
            self._known[owner] = ([*history], gathered)
        return gathered


class _Curated:
    def __init__(self) -> None:
        self.kept: list[Message] = []
        self.run: list[Message] = []
        """Assistant messages at the end."""

    def add(self, message: Message) -> None:
        if message.role == "assistant":
            self.run.append(message)
            return
        self.kept += [*self.whole(), message]
        self.run = []

    def whole(self) -> list[Message]:
        return [] if any(m.is_empty for m in self.run) else self.run


_curated = Growing(_Curated, _Curated.add)


def curated(history: Sequence[Message], owner: object = None) -> list[Message]:
    """What models are sent: without runs of assistant messages that have an empty one among them.

    `owner`: see `Growing`.
    """
    found = _curated(history, owner)
    return [*found.kept, *found.whole()]


class _Calls:
    def __init__(self) -> None:
        self.calls: list[ToolCall] = []
        """But for those that were found answered."""
        self.answered: set[str | None] = set()

    def add(self, message: Message) -> None:
        self.calls += message.tool_calls
        if message.role == "tool":
            self.answered.add(message.tool_call_id)


_calls = Growing(_Calls, _Calls.add)


def open_calls(history: Sequence[Message], owner: object = None) -> list[ToolCall]:
    """Calls without an answer, in order. Empty before every model request: that is the invariant.

    `owner`: see `Growing`.
    """
    found = _calls(history, owner)
    found.calls = [call for call in found.calls if call.id not in found.answered]
    return [*found.calls]


def estimate_message(message: Message) -> int:
    """Estimated tokens of one message, calls included; 3,000 for an image, 25,800 for another file."""
    from interlock.state.text import estimate_tokens

    data = 0
    if not isinstance(message.content, str):
        data = sum(3000 if p.type == "image" else 25_800 for p in message.content if isinstance(p, DataPart))
    calls = "".join(c.name + str(c.args) for c in message.tool_calls)
    return estimate_tokens(message.text) + estimate_tokens(calls) + data


class ToolDeclaration(BaseModel):
    """A tool as a model sees it; `parameters` is its JSON Schema."""

    name: str
    description: str
    parameters: dict[str, Any]


Feature = Literal["", "picture", "web"]
"""What a model may do for an answer besides writing it: draw, or search the web. Only Gemini's can."""


@dataclass(frozen=True)
class ModelCall:
    """One request to a model."""

    task: str
    """Id of the graph task that asks: a reply that was recorded for it before a crash is returned, not paid again."""
    role: str
    """main, classifier, …; maps to an alias in settings."""
    head: str
    """Chain head that the request was made from; the reply is recorded after it."""
    messages: Sequence[Message]
    """System message first (if any), then the curated history."""
    model: str = ""
    """A resolved model name; empty: the role's alias decides."""
    tools: Sequence[ToolDeclaration] = ()
    xml: bool = False
    """The model calls by tags in its text; it is sent none of the declarations, which stand in its system prompt."""
    schema: Mapping[str, Any] | None = None
    """JSON Schema of the answer, for helper calls."""
    temperature: float | None = None
    timeout_s: float | None = None
    attempts: int | None = None
    """Connection attempts; default 10."""
    feature: Feature = ""
    watch: Callable[[str], str | None] | None = None
    """Sees each piece of text before it is handed out. What it returns is why the answer is abandoned there: the
    piece isn't handed out, and the reply has the finish reason `abandoned`, this problem, and no calls."""


class ThoughtDelta(BaseModel):
    kind: Literal["thought"] = "thought"
    text: str


class TextDelta(BaseModel):
    kind: Literal["text"] = "text"
    text: str


class Usage(BaseModel):
    """Tokens of one request, as the provider counted them."""

    model_config = ConfigDict(extra="forbid")

    input: int = 0
    output: int = 0
    cached: int = 0
    thoughts: int = 0

    @property
    def total(self) -> int:
        return self.input + self.output


class Reply(BaseModel):
    """A complete answer; always the last item of a stream."""

    kind: Literal["reply"] = "reply"
    record: str
    """Chain record that holds `message`."""
    message: Message
    model: str
    finish_reason: str | None
    """Lower case: stop, length, safety, malformed_function_call, …; null: the stream ended without one."""
    usage: Usage
    duration_ms: int
    problem: str | None = None
    """Set when the provider said that the answer is malformed or blocked; the reason in words."""
    replayed: bool = False
    """Recorded before a crash: the request was not made again."""


ModelItem = ThoughtDelta | TextDelta | Reply


class Models(Protocol):
    """Chat models by role, alias or name, with retries, finish reasons, records and play-back."""

    def stream(self, call: ModelCall, emit: Emit) -> AsyncGenerator[ModelItem, None]:
        """Ask; thoughts and text as they come, the `Reply` last. Raises `ModelError` after the last attempt.

        Retries connection errors (never after the first shown chunk) and emits `retry`.
        """
        ...

    def resolve(self, name: str) -> str:
        """Alias → model name. Raises `UserError` with the nearest names for what can't be a model."""
        ...

    def of_role(self, role: str) -> str:
        """The model that answers for a role, by settings and defaults; resolved."""
        ...

    def limit(self, model: str) -> int:
        """Context window in tokens (1,048,576 where nothing else is known)."""
        ...
