"""request: the request to a provider, the chunks of its answer, and the message assembled from them.

Also parses calls that a model writes as tags in its text (`tools/tag_calls.py`).
"""

import base64
import hashlib
import re
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, Literal, Protocol, TypeVar

from pydantic import JsonValue

from interlock.state.errors import ModelError
from interlock.state.messages import (
    DataPart,
    Feature,
    Message,
    ModelCall,
    ModelItem,
    Opaque,
    Reply,
    TextDelta,
    TextPart,
    ThoughtDelta,
    ToolCall,
    ToolDeclaration,
    Usage,
    estimate_message_tokens,
    is_continuation,
)
from interlock.state.settings import Thinking
from interlock.state.text import clean_json, estimate_tokens, is_nested_deeper, replace_surrogates
from interlock.tools.call_arguments import TaggedTools, normalize_argument_names


@dataclass(frozen=True)
class ModelRequest:
    """A request as a provider gets it."""

    model: str
    """Resolved name."""
    messages: Sequence[Message]
    tools: Sequence[ToolDeclaration]
    schema: Mapping[str, Any] | None
    temperature: float
    agent: str
    role: str
    ordinal: int
    """Ordinal of the reply, per (agent, role)."""
    attempt: int = 0
    """0-based, within one call."""
    feature: Feature = ""
    thinking: Thinking = "auto"
    most: int | None = None
    """Tokens of the reply at most, thoughts included, where a budget leaves less than the model may write."""
    size: int = 0
    """Its estimated tokens, tools included, before what is known of the model's tokenizer."""
    instead: str = ""
    """The model asked if this one, a helper's small model, can't be had; empty: none."""


@dataclass(frozen=True)
class ParsedCall:
    """A complete tool call; `id` is the provider's own, if it gave one."""

    how: Literal["native", "xml", "json"] = field(default="native", kw_only=True)

    name: str
    args: dict[str, JsonValue]
    id: str | None = None
    signature: str | None = None


@dataclass(frozen=True)
class Chunk:
    """One piece of an answer; unset fields add nothing."""

    text: str = ""
    thought: str = ""
    calls: tuple[ParsedCall, ...] = ()
    signature: str | None = None
    finish_reason: str | None = None
    problem: str | None = None
    data: tuple[DataPart, ...] = ()
    usage: Usage | None = None
    """Added to the usage of earlier chunks."""
    progress: tuple[int, int] | None = None
    """Tokens of the request that the server has read, and all of them."""
    opaque: Opaque | None = None
    warning: str = ""
    """What people should know of the answer."""


class Provider(Protocol):
    """A source of models. A stream makes one attempt and never retries by itself."""

    def stream(self, request: ModelRequest) -> AsyncGenerator[Chunk, None]:
        """Yield chunks as they arrive. Client exceptions pass through; `failure.to_model_error_or_reraise` interprets
        them."""
        ...


T = TypeVar("T")
_SLACK = 512


class MessageCache(Generic[T]):
    """Caches by message identity: messages are immutable, and the transcript loads each only once."""

    def __init__(self, make: Callable[[Message], T]) -> None:
        self._make = make
        self._known: dict[int, tuple[Message, T]] = {}
        self._last: tuple[list[Message], list[T]] = ([], [])
        """A conversation mostly grows: comparing the last one as a prefix takes 10 ns per message."""

    def __call__(self, messages: Sequence[Message]) -> list[T]:
        known = self._known
        before, found = self._last
        if not is_continuation(messages, before):
            before, found = list[Message](), list[T]()
        new = messages[len(before) :]
        found = [*found, *map(self._compute_once, new)]
        before.extend(new)
        self._last = (before, found)
        if len(known) > 2 * len(messages) + _SLACK:
            self._known = {id(m): known[id(m)] for m in messages if id(m) in known}
        return found

    def _compute_once(self, message: Message) -> T:
        entry = self._known.get(id(message))
        if entry is None:
            entry = self._known[id(message)] = (message, self._make(message))
        return entry[1]


class ToolsCache(Generic[T]):
    """Caches the result for the last request's tools, which are usually unchanged."""

    def __init__(self, make: Callable[[Sequence[ToolDeclaration]], T]) -> None:
        self._make = make
        self._last: tuple[Sequence[ToolDeclaration], T] | None = None

    def __call__(self, tools: Sequence[ToolDeclaration]) -> T:
        if self._last is None or self._last[0] != tools:
            self._last = (tools, self._make(tools))
        return self._last[1]


_TIERS = ("", "flex_", "priority_")
"""What LangChain puts before a name where OpenAI served a request at another price and speed."""
_WRITTEN = ("cache_creation", "ephemeral_5m_input_tokens", "ephemeral_1h_input_tokens")
"""Input written to a cache: LangChain counts it under the first name, or by how long it is kept."""


def to_usage(metadata: Mapping[str, Any] | None) -> Usage | None:
    """Convert LangChain's `usage_metadata`; in a stream, what the chunk adds. Output includes thoughts."""
    if metadata is None:
        return None
    of_input: Mapping[str, int | None] = metadata.get("input_token_details") or {}
    of_output: Mapping[str, int | None] = metadata.get("output_token_details") or {}
    return Usage(
        input=metadata["input_tokens"],
        output=metadata["output_tokens"],
        cached=_sum_token_details(of_input, "cache_read"),
        written=_sum_token_details(of_input, *_WRITTEN),
        thoughts=_sum_token_details(of_output, "reasoning"),
    )


def _sum_token_details(details: Mapping[str, int | None], *names: str) -> int:
    return sum(details.get(f"{tier}{name}") or 0 for tier in _TIERS for name in names)


def read_base64_data(part: DataPart) -> str:
    if part.data is not None:
        return part.data
    return base64.b64encode(Path(part.path or "").read_bytes()).decode()


def normalize_finish_reason(
    provider: str, raw_reason: str | None, names: Mapping[str, str]
) -> tuple[str | None, str | None]:
    """Return the normalized finish reason, and a problem unless it is that of a regular answer."""
    reason = names.get(raw_reason.lower(), raw_reason.lower()) if raw_reason else None
    problem = None if reason in (None, "stop", "length") else f"{provider} stopped the answer: {raw_reason}."
    return reason, problem


def _message_digest(message: Message) -> bytes:
    return hashlib.sha256(message.model_dump_json(exclude_defaults=True).encode()).digest()


class RequestHash:
    """sha256 of everything that determines an answer: model, messages, tools, schema, temperature, thinking."""

    def __init__(self) -> None:
        self._digests = MessageCache(_message_digest)
        self._tools = ToolsCache(lambda tools: b"".join(t.model_dump_json().encode() for t in tools))

    def __call__(self, request: ModelRequest) -> str:
        total = hashlib.sha256(f"{request.model}\n{request.temperature!r}\n{request.schema!r}\n".encode())
        total.update(request.feature.encode())
        if request.thinking != "auto":  # records made before this setting existed keep their names
            total.update(request.thinking.encode())
        total.update(self._tools(request.tools))
        total.update(b"".join(self._digests(request.messages)))
        return total.hexdigest()


class Budget(Protocol):
    """The budget of the whole run. Each call is reserved beforehand, and settled or forfeited afterwards."""

    async def reserve(self, call: ModelCall, agent: str, model: str, tokens: int) -> int | None:
        """Reserve a call; `tokens` is the request's estimated size. Raises `Stopped` if it must not be made.

        Returns the tokens that its reply may take at most; None without a limit.
        """
        ...

    def settle_reservation(self, task: str, usage: Usage | None = None) -> None:
        """Record that usage is known: of an answered call, or none: the provider refused it."""
        ...

    def forfeit_reservation(self, task: str) -> None:
        """Record that the call was cut off: it counts at its estimate."""
        ...


class ModelLog(Protocol):
    """The run's replies, by the task that asked and by (agent, role, ordinal).

    `docs/internals.md#replies-by-ordinal`.
    """

    def recorded(self, task: str) -> Reply | None:
        """Return the reply recorded for this graph task before a crash."""
        ...

    def ordinal(self, agent: str, role: str) -> int:
        """Return the 0-based ordinal of this role's next reply; another request under way has one of its own."""
        ...

    def unused(self, agent: str, role: str, ordinal: int) -> None:
        """Give an ordinal back: its request got no reply."""
        ...

    def record(self, call: ModelCall, request: ModelRequest, reply: Reply, request_hash: str) -> Reply:
        """Append the reply's message to the chain after `call.head` and write its row, in one transaction.

        Returns the reply with its record.
        """
        ...


OWN_ID = re.compile(r"\d+\.\d+(\.\d+)?")
"""Ids assigned by us, which are not sent to providers."""
_DEEPEST = 64
"""Maximum nesting of a call's arguments; pydantic reads a record of 200 levels at most."""
_MALFORMED = "malformed_function_call"
_HIGH = re.compile("[\ud800-\udbff]$")


class _TextCollector:
    """Accumulates text; half a surrogate pair is held back until the next chunk."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._half = ""

    def append_and_return_complete_text(self, text: str) -> str:
        """Append text and return what can be shown now."""
        text = self._half + text
        self._half = text[-1:] if _HIGH.search(text) else ""
        ready = _join_or_replace_surrogates(text[: len(text) - len(self._half)])
        self._parts.append(ready)
        return ready

    def __str__(self) -> str:
        return "".join(self._parts) + replace_surrogates(self._half)


def _join_or_replace_surrogates(text: str) -> str:
    """Combine surrogate pairs; lone halves are replaced."""
    if text.isascii():
        return text
    return replace_surrogates(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))


class AnswerBuilder:
    """An answer being assembled."""

    def __init__(self) -> None:
        self._text, self._thought = _TextCollector(), _TextCollector()
        self._calls: list[ParsedCall] = []
        self._data: list[DataPart] = []
        self._signature: str | None = None
        self._opaque: Opaque | None = None
        self.warning = ""
        self.finish_reason: str | None = None
        self.problem: str | None = None
        self.usage = Usage()
        self._refused = ""
        """Why calls of the answer can't be taken."""
        self.begun_s = 0.0
        """Seconds until the server sent the first piece; 0: it hasn't."""
        self.shown = False
        """Output was streamed to people: the request can't be repeated silently."""

    def add_chunk(self, chunk: Chunk) -> list[ModelItem]:
        self._calls.extend(call for call in chunk.calls if not self._refuse_if_nested_too_deep(call))
        self._data.extend(chunk.data)
        self._signature = chunk.signature or self._signature
        self._opaque = chunk.opaque or self._opaque
        self.warning = chunk.warning or self.warning
        self.finish_reason = chunk.finish_reason or self.finish_reason
        self.problem = chunk.problem or self.problem
        if self._refused:
            self.finish_reason, self.problem = _MALFORMED, self._refused
            self._calls.clear()
        if chunk.usage is not None:
            self.usage = _add_usage(self.usage, chunk.usage)
        items: list[ModelItem] = []
        if chunk.thought and (thought := self._thought.append_and_return_complete_text(chunk.thought)):
            items.append(ThoughtDelta(text=thought))
        if chunk.text and (text := self._text.append_and_return_complete_text(chunk.text)):
            items.append(TextDelta(text=text))
        self.shown = self.shown or bool(items)
        return items

    def _refuse_if_nested_too_deep(self, call: ParsedCall) -> bool:
        """Return whether its arguments could not be read again once they are stored."""
        if is_nested_deeper(call.args, _DEEPEST):
            self._refused = (
                f"the arguments of a call of {call.name[:100]!r} are nested more than {_DEEPEST} deep"
            )
        return bool(self._refused)

    @property
    def call_protocol(self) -> Literal["", "native", "xml", "json"]:
        """How tools were called."""
        return self._calls[0].how if self._calls else ""

    def mark_cut_off(self, error: ModelError) -> None:
        """Mark the answer as cut off: no finish reason, and no calls, as they may be incomplete."""
        self._calls.clear()
        self.finish_reason = None
        self.problem = f"The answer was cut off: {error}"

    def mark_abandoned(self, reason: str, request_messages: Sequence[Message]) -> None:
        """Mark the answer as abandoned by the caller. If the provider hasn't reported usage, it is estimated."""
        self._calls.clear()
        self.finish_reason, self.problem = "abandoned", reason
        if not self.usage.total:
            spent = sum(map(estimate_message_tokens, request_messages))
            self.usage = Usage(input=spent, output=estimate_tokens(f"{self._thought}{self._text}"))

    def build_message(self, ordinal: int, taken_ids: set[str]) -> Message:
        """Build the message. Calls without an id, or with one in `taken_ids`, get `<ordinal>.<index>` as theirs."""
        taken_ids = set(taken_ids)
        calls: list[ToolCall] = []
        for index, piece in enumerate(self._calls):
            call_id = (
                piece.id
                if piece.id and piece.id not in taken_ids
                else _make_call_id(ordinal, index, taken_ids)
            )
            taken_ids.add(call_id)
            args = clean_json(normalize_argument_names(piece.name, piece.args))
            calls.append(
                ToolCall.model_validate(
                    {
                        "id": call_id,
                        "name": replace_surrogates(piece.name),
                        "args": args,
                        "signature": piece.signature,
                    }
                )
            )
        return Message(
            role="assistant",
            content=(TextPart(text=str(self._text)), *self._data) if self._data else str(self._text),
            tool_calls=tuple(calls),
            thought=str(self._thought) or None,
            signature=self._signature,
            opaque=self._opaque,
        )


def _make_call_id(ordinal: int, index: int, taken_ids: set[str]) -> str:
    """Imported history may contain another run's `<ordinal>.<index>`; then a third number is added."""
    own = f"{ordinal}.{index}"
    repeats = 2
    while own in taken_ids:
        own = f"{ordinal}.{index}.{repeats}"
        repeats += 1
    return own


def _add_usage(a: Usage, b: Usage) -> Usage:
    paid = [one.usd for one in (a, b) if one.usd is not None]
    return Usage(
        input=a.input + b.input,
        output=a.output + b.output,
        cached=a.cached + b.cached,
        written=a.written + b.written,
        thoughts=a.thoughts + b.thoughts,
        usd=sum(paid) if paid else None,
    )


async def extract_tagged_calls(
    pieces: AsyncGenerator[Chunk, None], tools: TaggedTools
) -> AsyncGenerator[Chunk, None]:
    """Strip tags from the text and yield the calls at the end. A call that was cut off makes the answer malformed."""
    parser, reason, problem = tools.make_parser(), None, None
    async with aclosing(pieces):
        async for chunk in pieces:
            reason, problem = chunk.finish_reason or reason, chunk.problem or problem
            yield replace(chunk, text=parser.feed(chunk.text))
    rest = parser.close(truncated=reason != "stop")
    if parser.problem and not problem:
        yield Chunk(text=rest, finish_reason=_MALFORMED, problem=f"a call can't be read: {parser.problem}")
        return
    yield Chunk(text=rest, calls=tuple(ParsedCall(*tools.resolve_call(c), how="xml") for c in parser.calls))
