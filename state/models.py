"""models: what nodes ask of chat models, and what comes back."""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from pydantic import BaseModel, ConfigDict

from interlock.state.events import Emit
from interlock.state.messages import Message


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
