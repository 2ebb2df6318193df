"""messages: the conversation's records. Only `services/models` knows providers' classes."""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Generic, Literal, Protocol, TypeVar
from weakref import WeakKeyDictionary

from pydantic import BaseModel, ConfigDict, Field, JsonValue, SerializerFunctionWrapHandler, model_serializer
from typing_extensions import TypedDict

from interlock.state.errors import ModelError
from interlock.state.events import Emit

Role = Literal["system", "user", "assistant", "tool"]
Origin = Literal["person", "context", "hook", "nudge", "continue", "agent", "snapshot"]
"""Who wrote a user message; `snapshot`: `compress`, replacing what it dropped."""
ToolStatus = Literal["success", "error", "cancelled"]


class Frozen(BaseModel, defer_build=True):
    """Immutable; unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class TextPart(Frozen):
    """Plain text."""

    type: Literal["text"] = "text"
    text: str
    section: str | None = None
    """Its section's name, in messages of ours that consist of sections."""

    @model_serializer(mode="wrap")
    def _keep_type_field(self, handler: SerializerFunctionWrapHandler) -> dict[str, JsonValue]:
        """Keep `type` even when defaults are excluded: parsing depends on it."""
        return {"type": "text", **handler(self)}


class DataPart(Frozen):
    """An image or another file: `data` is base64, `path` a file in the workspace; exactly one of them."""

    type: Literal["image", "file"]
    mime_type: str
    data: str | None = None
    path: str | None = None


Part = Annotated[TextPart | DataPart, Field(discriminator="type")]


class ToolCall(Frozen):
    """One call requested by a model. `args` keep their order."""

    id: str
    name: str
    args: dict[str, JsonValue] = {}
    signature: str | None = None
    """The provider's thought signature (base64); must be sent back unchanged."""


class Opaque(Frozen):
    """What a model's provider wants back unchanged beside an answer: its thinking, signed or encrypted."""

    model: str
    """The model that made it; another one that goes on gets the answer without."""
    blocks: tuple[dict[str, JsonValue], ...] = ()
    """Blocks of the answer's content, before its text."""
    fields: dict[str, JsonValue] = {}
    """Fields of the answer's message."""


class Message(Frozen):
    """One record of the chain; in inputs and outputs, a dict of the same shape."""

    role: Role
    content: str | tuple[Part, ...] = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None
    """The tool's name, in tool messages."""
    status: ToolStatus | None = None
    """How the call ended, in tool messages."""
    origin: Origin | None = None
    """Author of a user message if not the person; our texts are never shown as the person's words."""
    thought: str | None = None
    signature: str | None = None
    """Thought signature of a message without calls (base64)."""
    opaque: Opaque | None = None

    @property
    def text(self) -> str:
        """All text parts, joined."""
        if isinstance(self.content, str):
            return self.content
        return "".join(p.text for p in self.content if isinstance(p, TextPart))

    def part(self, section: str) -> str:
        """The text of a section; empty: there is none."""
        if isinstance(self.content, str):
            return ""
        return "".join(p.text for p in self.content if isinstance(p, TextPart) and p.section == section)

    @property
    def is_empty(self) -> bool:
        """Whether it has no visible text, data or calls."""
        return not self.tool_calls and not self.content


T = TypeVar("T")


def is_continuation(history: Sequence[Message], earlier_history: list[Message]) -> bool:
    """Whether a history is another one, or that and more: of the same messages, which takes 5 ns for each."""
    begin = history[: len(earlier_history)]
    return earlier_history == (begin if isinstance(begin, list) else [*begin])


class IncrementalScan(Generic[T]):
    """Data gathered from a history incrementally: if the history grew, only new messages are visited.

    Cached per owner, e.g. the history's transcript, for the owner's lifetime.
    """

    def __init__(self, start: Callable[[], T], add: Callable[[T, Message], None]) -> None:
        self._start, self._add = start, add
        self._known: WeakKeyDictionary[object, tuple[list[Message], T]] = WeakKeyDictionary()

    def __call__(self, history: Sequence[Message], cache_owner: object = None) -> T:
        """Don't modify the result: it keeps growing."""
        known = self._known.get(cache_owner) if cache_owner else None
        if known is None or not is_continuation(history, known[0]):
            known = (list[Message](), self._start())
        seen, gathered = known
        for message in history[len(seen) :]:
            self._add(gathered, message)
            seen.append(message)
        if cache_owner:
            self._known[cache_owner] = known
        return gathered


class _CuratedHistory:
    def __init__(self) -> None:
        self.kept: list[Message] = []
        self.run: list[Message] = []
        """Trailing assistant messages."""

    def add_message(self, message: Message) -> None:
        if message.role == "assistant":
            self.run.append(message)
            return
        self.kept += [*self.valid_trailing_answers(), message]
        self.run = []

    def valid_trailing_answers(self) -> list[Message]:
        return [] if any(m.is_empty for m in self.run) else self.run


_curated = IncrementalScan(_CuratedHistory, _CuratedHistory.add_message)


def curate_history(history: Sequence[Message], cache_owner: object = None) -> list[Message]:
    """The history sent to models: without runs of assistant messages that include an empty one.

    `cache_owner`: see `IncrementalScan`.
    """
    found = _curated(history, cache_owner)
    return [*found.kept, *found.valid_trailing_answers()]


class _UnansweredCalls:
    def __init__(self) -> None:
        self.calls: list[ToolCall] = []
        """Those not yet found answered."""
        self.answered: set[str | None] = set()

    def add_message(self, message: Message) -> None:
        self.calls += message.tool_calls
        if message.role == "tool":
            self.answered.add(message.tool_call_id)


_calls = IncrementalScan(_UnansweredCalls, _UnansweredCalls.add_message)


def unanswered_calls(history: Sequence[Message], cache_owner: object = None) -> list[ToolCall]:
    """Unanswered calls, in order. Invariant: empty before every model request.

    `cache_owner`: see `IncrementalScan`.
    """
    found = _calls(history, cache_owner)
    found.calls = [call for call in found.calls if call.id not in found.answered]
    return [*found.calls]


def estimate_message_tokens(message: Message) -> int:
    """Estimated tokens of a message, calls included; 3,000 per image, 25,800 per other file."""
    from interlock.state.text import estimate_tokens

    data = 0
    if not isinstance(message.content, str):
        data = sum(3000 if p.type == "image" else 25_800 for p in message.content if isinstance(p, DataPart))
    calls = "".join(c.name + str(c.args) for c in message.tool_calls)
    return estimate_tokens(message.text) + estimate_tokens(calls) + data


class ToolDeclaration(BaseModel, defer_build=True):
    """A tool as a model sees it; `parameters` is its JSON Schema."""

    name: str
    description: str
    parameters: dict[str, Any]


Feature = Literal["", "picture", "web"]
"""What a model may do besides writing: draw, or search the web. Gemini only."""


@dataclass(frozen=True)
class ModelCall:
    """A request to a model, before aliases and tools are resolved."""

    task: str
    """Id of the requesting graph task: a reply recorded for it before a crash is replayed, not paid for twice."""
    role: str
    """main, classifier, …; settings map it to an alias."""
    head: str
    """Chain head of the request; the reply is recorded after it."""
    messages: Sequence[Message]
    """System message first (if any), then the curated history."""
    model: str = ""
    """A resolved model name; empty: determined by the role's alias."""
    tools: Sequence[ToolDeclaration] = ()
    withheld: Sequence[ToolDeclaration] = ()
    """Tools that exist but aren't on offer: a call of one by tags is a call, to be refused."""
    protocol: str = "native"
    """How the model calls tools (`Protocol`): by `xml` tags in its text, declared in its system prompt; as `json` under
    a schema; `auto`: natively, or however it does."""
    schema: Mapping[str, Any] | None = None
    """JSON Schema of the answer, for helper calls."""
    temperature: float | None = None
    timeout_s: float | None = None
    attempts: int | None = None
    """Connection attempts of this call; default 10."""
    failures: int = 0
    """Attempts in a row that failed before this call."""
    feature: Feature = ""
    watch: "Callable[[TextDelta | ThoughtDelta], str | None] | None" = None
    """Sees each piece of text or thought before it is yielded. A returned string aborts the answer: the piece isn't
    yielded, and the reply has finish reason `abandoned`, this string as its problem, and no calls."""


class RetryPlan(TypedDict):
    """Why the last try at an answer failed, and when the next one is due."""

    reason: str
    failures: int
    """Connections in a row that failed; 0: an answer came, but was invalid."""
    spent_s: float
    """Seconds of attempts since the first of these, with the waits, this one included."""
    delay_s: float
    at: float
    """Unix time of the next try; 0: there is none."""


class ThoughtDelta(BaseModel, defer_build=True):
    kind: Literal["thought"] = "thought"
    text: str


class TextDelta(BaseModel, defer_build=True):
    kind: Literal["text"] = "text"
    text: str


class Usage(BaseModel, defer_build=True):
    """Tokens of one request, as counted by the provider."""

    model_config = ConfigDict(extra="forbid")

    input: int = 0
    """All of it, `cached` and `written` included."""
    output: int = 0
    """All of it, `thoughts` included."""
    cached: int = 0
    """Read from the provider's cache."""
    written: int = 0
    """Written to the provider's cache."""
    thoughts: int = 0
    usd: float | None = None
    """What it cost; null: unknown. The provider's own figure where it gives one."""

    @property
    def total(self) -> int:
        return self.input + self.output


End = Literal["complete", "length", "on", "blocked", "overflow", "retry"]
"""`on`: the model paused and goes on when it is asked again; `overflow`: the request filled its context window."""

ENDS: dict[str, End] = {
    # OpenAI's chat completions and those who speak like it, Ollama, Gemini
    **dict.fromkeys(("stop", "tool_calls", "function_call", "eos", "done"), "complete"),
    **dict.fromkeys(("length", "model_length"), "length"),
    "content_filter": "blocked",
    # Anthropic, Bedrock
    **dict.fromkeys(("end_turn", "stop_sequence", "tool_use"), "complete"),
    "max_tokens": "length",
    "pause_turn": "on",
    "model_context_window_exceeded": "overflow",
    **dict.fromkeys(("refusal", "guardrail_intervened", "content_filtered"), "blocked"),
    **dict.fromkeys(("malformed_model_output", "malformed_tool_use"), "retry"),
    # OpenAI Responses: a status, or the reason of `incomplete_details`
    "completed": "complete",
    "max_output_tokens": "length",
    # Gemini
    **dict.fromkeys(
        ("safety", "recitation", "blocklist", "prohibited_content", "spii", "image_safety", "prompt_blocked"),
        "blocked",
    ),
    **dict.fromkeys(("malformed_function_call", "unexpected_tool_call", "error"), "retry"),
}
"""In lower case. An end that isn't here, of a stream that closed properly, is an answer, with a warning."""

BLOCKED = frozenset(name for name, end in ENDS.items() if end == "blocked")
"""Ends that a retry doesn't change."""


class Reply(BaseModel, defer_build=True):
    """A complete answer; always the last item of a stream."""

    kind: Literal["reply"] = "reply"
    record: str
    """Chain record containing `message`."""
    message: Message
    model: str
    finish_reason: str | None
    """Lower case: stop, length, safety, malformed_function_call, …; null: the stream ended without one."""
    usage: Usage
    duration_ms: int
    problem: str | None = None
    """In words: why the provider called the answer malformed or blocked it."""
    replayed: bool = False
    """Replayed from a record made before a crash; no request was sent."""
    called: Literal["", "native", "xml", "json"] = ""
    """How it called tools, where that wasn't known before; empty: it called none."""


ModelItem = ThoughtDelta | TextDelta | Reply


class Models(Protocol):
    """Chat models by role, alias or name, with retries, finish reasons, records and replay."""

    def stream(self, call: ModelCall, emit: Emit) -> AsyncGenerator[ModelItem, None]:
        """Yield thoughts and text as they stream, the `Reply` last. Raises `ModelError` after the last attempt.

        Retries connection errors (never after the first chunk shown) and emits `retry`.
        """
        ...

    def plan_retry(self, problem: ModelError | str, failed_attempts: int, spent_s: float = 0) -> RetryPlan:
        """When to try again after so many failures in a row: without an answer (an error), or with an invalid one.

        If it is pointless, the error's text then says so.
        """
        ...

    def resolve_alias(self, name: str) -> str:
        """Alias → model name. Raises `UserError` with the nearest names if it can't be a model."""
        ...

    def resolve_role_model(self, role: str) -> str:
        """The model for a role, from settings and defaults; resolved."""
        ...

    def context_window(self, model: str) -> int:
        """Context window in tokens (default 1,048,576)."""
        ...

    def adjust_token_estimate(self, model: str, tokens: int) -> int:
        """What an estimate means for a model, by how far earlier ones were off."""
        ...

    def has_reliable_finish_reasons(self, model: str) -> bool:
        """Whether the end of an answer without calls says if the model has more to do."""
        ...

    def next_call_protocol(self, model: str, reply: Reply, replies_without_call: int) -> str:
        """How the model calls tools from now on, after a reply under `auto`; `replies_without_call`: its replies
        without a call so far."""
        ...
