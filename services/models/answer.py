"""answer: puts the pieces of a stream together to one message; calls that a model writes as tags are read out of it."""

import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace

from interlock.services.models.request import CallPiece, Chunk
from interlock.state.errors import ModelError
from interlock.state.messages import DataPart, Message, TextPart, ToolCall, estimate_message
from interlock.state.models import ModelItem, TextDelta, ThoughtDelta, ToolDeclaration, Usage
from interlock.state.text import clean, clean_json, estimate_tokens
from interlock.tools._tags import parser_of, typed

OWN_ID = re.compile(r"\d+\.\d+(\.\d+)?")
"""Ids that we gave, which no provider is told."""
_HIGH = re.compile("[\ud800-\udbff]$")


class _Joined:
    """Text that grows; half of a surrogate pair waits for the other half, which the next chunk may bring."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._half = ""

    def add(self, text: str) -> str:
        """What can be shown now."""
        text = self._half + text
        self._half = text[-1:] if _HIGH.search(text) else ""
        ready = _paired(text[: len(text) - len(self._half)])
        self._parts.append(ready)
        return ready

    def __str__(self) -> str:
        return "".join(self._parts) + clean(self._half)


def _paired(text: str) -> str:
    """Surrogate pairs as the characters they stand for; lone halves replaced."""
    if text.isascii():
        return text
    return clean(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))


class Answer:
    """What has come of an answer so far."""

    def __init__(self) -> None:
        self._text, self._thought = _Joined(), _Joined()
        self._calls: list[CallPiece] = []
        self._data: list[DataPart] = []
        self._signature: str | None = None
        self.finish_reason: str | None = None
        self.problem: str | None = None
        self.usage = Usage()
        self.shown = False
        """Something was streamed to people: the request can't be repeated behind their backs."""

    def add(self, chunk: Chunk) -> list[ModelItem]:
        """Take a piece in; what of it is streamed."""
        self._calls.extend(chunk.calls)
        self._data.extend(chunk.data)
        self._signature = chunk.signature or self._signature
        self.finish_reason = chunk.finish_reason or self.finish_reason
        self.problem = chunk.problem or self.problem
        if chunk.usage is not None:
            self.usage = _sum(self.usage, chunk.usage)
        items: list[ModelItem] = []
        if chunk.thought and (thought := self._thought.add(chunk.thought)):
            items.append(ThoughtDelta(text=thought))
        if chunk.text and (text := self._text.add(chunk.text)):
            items.append(TextDelta(text=text))
        self.shown = self.shown or bool(items)
        return items

    def cut(self, error: ModelError) -> None:
        """The connection was lost after the answer had begun: no finish reason, and calls that may not be all."""
        self._calls.clear()
        self.finish_reason = None
        self.problem = f"The answer was cut off: {error}"

    def abandon(self, why: str, request: Sequence[Message]) -> None:
        """Whoever asked wants no more of it. The provider didn't get to say what it cost: estimated."""
        self._calls.clear()
        self.finish_reason, self.problem = "abandoned", why
        if not self.usage.total:
            spent = sum(map(estimate_message, request))
            self.usage = Usage(input=spent, output=estimate_tokens(f"{self._thought}{self._text}"))

    def message(self, ordinal: int, taken: set[str]) -> Message:
        """The record. Calls get the provider's id, else `<ordinal>.<index>`; `taken` are the history's ids."""
        taken = set(taken)
        calls: list[ToolCall] = []
        for index, piece in enumerate(self._calls):
            call_id = piece.id if piece.id and piece.id not in taken else _own_id(ordinal, index, taken)
            taken.add(call_id)
            args = clean_json(piece.args)
            calls.append(
                ToolCall.model_validate(
                    {"id": call_id, "name": clean(piece.name), "args": args, "signature": piece.signature}
                )
            )
        return Message(
            role="assistant",
            content=(TextPart(text=str(self._text)), *self._data) if self._data else str(self._text),
            tool_calls=tuple(calls),
            thought=str(self._thought) or None,
            signature=self._signature,
        )


def call_ids(message: Message) -> list[str]:
    return [call.id for call in message.tool_calls]


def _own_id(ordinal: int, index: int, taken: set[str]) -> str:
    """A history handed in at the door may hold `<ordinal>.<index>` of another run: then a third number is added."""
    own = f"{ordinal}.{index}"
    repeats = 2
    while own in taken:
        own = f"{ordinal}.{index}.{repeats}"
        repeats += 1
    return own


def _sum(a: Usage, b: Usage) -> Usage:
    return Usage(
        input=a.input + b.input,
        output=a.output + b.output,
        cached=a.cached + b.cached,
        thoughts=a.thoughts + b.thoughts,
    )


_MALFORMED = "malformed_function_call"


async def tagged(
    pieces: AsyncGenerator[Chunk, None], tools: Sequence[ToolDeclaration]
) -> AsyncGenerator[Chunk, None]:
    """The pieces without their tags, and at the end the calls. One that was cut off makes the answer malformed."""
    schemas = {tool.name: tool.parameters for tool in tools}
    parser, reason, problem = parser_of(schemas), None, None
    async with aclosing(pieces):
        async for chunk in pieces:
            reason, problem = chunk.finish_reason or reason, chunk.problem or problem
            yield replace(chunk, text=parser.feed(chunk.text))
    rest = parser.close(cut=reason != "stop")
    if parser.problem and not problem:
        yield Chunk(text=rest, finish_reason=_MALFORMED, problem=f"a call can't be read: {parser.problem}")
        return
    yield Chunk(text=rest, calls=tuple(CallPiece(c.name, typed(c, schemas)) for c in parser.calls))
