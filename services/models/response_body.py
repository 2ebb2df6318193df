"""response_body: an answer's body: each byte is heard of, and a plain answer to a request for a stream becomes one."""

import asyncio
import json
import re
import socket
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache
from importlib import import_module
from typing import Any, cast

PINGS_S = 600.0
"""Seconds for which pings and comments alone count."""
_STEP = 0.01
"""Share of a limit by which it is put off at least: not for every piece of a fast stream."""
_LOOKED = 64
"""Bytes of a line that say what it is."""
_UNCLEAR = 32
"""Bytes from which on an unfinished `data:` line is no ping."""
_PING = re.compile(rb"""(event:\s*|data:\s*("|\{\s*"type"\s*:\s*")?)(ping|keep-?alive|heartbeat)\b""", re.I)
_FIELDS = (b"event:", b"id:", b"retry:")
_HEARD: ContextVar[Callable[[bool], None] | None] = ContextVar("heard", default=None)


@contextmanager
def subscribe_to_body_bytes(on_bytes: Callable[[bool], None]) -> Generator[None]:
    """Call `on_bytes` for each piece of a body that this task receives: whether it holds part of an answer."""
    around = _HEARD.get()

    def all_told(is_data: bool) -> None:
        on_bytes(is_data)
        if around is not None:
            around(is_data)

    _HEARD.set(all_told)
    try:
        yield
    finally:
        _HEARD.set(around)


def wrap_body_to_report_bytes(response: Any) -> None:
    """Report the pieces of the response's body as they arrive."""
    made = _reporting_stream_class(type(response).__module__.partition(".")[0])
    response.stream = made(response.stream)


@cache
def _reporting_stream_class(package: str) -> Callable[[Any], Any]:
    """Return the class of streams for `httpx` or `httpx2`."""
    stream_class: type[Any] = import_module(package).AsyncByteStream

    class Reporting(stream_class):
        def __init__(self, source: Any) -> None:
            self._source, self._lines = source, BodyLines()

        async def __aiter__(self) -> AsyncGenerator[bytes, None]:
            async for piece in self._source:
                if (heard := _HEARD.get()) is not None:
                    heard(self._lines.contains_data(piece))
                yield piece

        async def aclose(self) -> None:
            await self._source.aclose()

    return Reporting


class BodyLines:
    """Reads the lines of a body, however it is cut, for what in them is part of an answer."""

    def __init__(self) -> None:
        self._begun = b""
        """How the unfinished line begins."""
        self._is_ping = False
        """Whether the event that is being read is a ping."""

    def contains_data(self, piece: bytes) -> bool:
        """Return whether the piece holds more than pings, comments and names."""
        found = False
        *whole, rest = piece.split(b"\n")
        for line in whole:
            found = self._is_data_line((self._begun + line[:_LOOKED]).rstrip(b"\r"), whole=True) or found
            self._begun = b""
        self._begun = (self._begun + rest[:_LOOKED])[:_LOOKED]
        return bool(rest and self._is_data_line(self._begun.rstrip(b"\r"), whole=False)) or found

    def _is_data_line(self, line: bytes, *, whole: bool) -> bool:
        if not line or line.startswith(b":"):
            self._is_ping = self._is_ping and bool(line)
            return False
        if line.startswith(_FIELDS):
            if line.startswith(b"event:"):
                self._is_ping = bool(_PING.match(line))
            return False
        if not whole and any(field.startswith(line) for field in (*_FIELDS, b"data:")):
            return False
        if not line.startswith(b"data:"):
            return True
        is_clear = whole or len(line) >= _UNCLEAR
        return is_clear and not self._is_ping and not _PING.match(line)


class ExtendableTimeout:
    """A time limit that bytes put off: by its whole length, but pings alone for no more than ten minutes."""

    def __init__(self, timer: asyncio.Timeout, limit_s: float, latest: float | None) -> None:
        """`latest`: the time of the loop beyond which nothing puts it off."""
        self._timer, self._limit_s, self._latest = timer, limit_s, latest
        self._time = asyncio.get_running_loop().time
        self._said = self._heard = self._time()

    def extend_on_activity(self, is_data: bool) -> None:
        """Put the limit off for bytes that arrived now."""
        now = self._time()
        self._said = now if is_data else self._said
        if now - self._heard < self._limit_s * _STEP or self._timer.expired():
            return
        self._heard = now
        ends = now + self._limit_s if is_data else min(now + self._limit_s, self._said + PINGS_S)
        ends = max(ends, self._timer.when() or 0)
        self._timer.reschedule(ends if self._latest is None else min(ends, self._latest))

    @property
    def silent_s(self) -> float:
        """Seconds since bytes arrived, or since the wait began."""
        return self._time() - self._heard

    def describe_silence(self) -> str:
        """Return what is said of the limit once it has passed."""
        if self._heard - self._said > self._limit_s * _STEP:
            return f"nothing but signs of life came for {self._time() - self._said:.0f} s"
        return f"nothing came for {self._limit_s:g} s"


Json = dict[str, Any]
_STREAMED = "text/event-stream"
_SHOWN = 200
"""Characters shown of an answer that can't be read."""


async def convert_plain_answer_to_event_stream(response: Any) -> None:
    """Replace a plain answer by the events of a stream: a response hook of httpx and httpx2."""
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if response.status_code != 200 or kind not in ("application/json", "text/html", "text/plain"):
        return
    request = response.request
    path = next((path for path in _PROTOCOLS if request.url.path.endswith(path)), "")
    if not path or not json.loads(request.content).get("stream"):
        return
    raw = b"".join([piece async for piece in response.stream])
    await response.stream.aclose()
    text: str = type(response)(200, headers=response.headers, content=raw).text
    is_stream = text.lstrip().startswith(("data:", "event:"))  # under another name
    events = text if is_stream else "".join(map(_format_sse_event, _to_stream_events(path, text)))
    for name in ("content-encoding", "content-length"):
        response.headers.pop(name, None)
    response.headers["content-type"] = _STREAMED
    response.stream = import_module(type(response).__module__.partition(".")[0]).ByteStream(events.encode())


def _format_sse_event(data: Json) -> str:
    name = f"event: {data['type']}\n" if "type" in data else ""
    return f"{name}data: {json.dumps(data)}\n\n"


def _to_stream_events(path: str, text: str) -> list[Json]:
    """Return the events that a whole answer stands for, or an error that says what came instead."""
    try:
        whole: Any = json.loads(text)
    except ValueError:
        whole = None
    told = cast("Json", whole) if isinstance(whole, dict) else {}
    if told.get("error"):
        return [told]
    field, read = _PROTOCOLS[path]
    parts: Any = told.get(field)
    if not isinstance(parts, list) or not all(isinstance(part, dict) for part in cast("list[Any]", parts)):
        shown = " ".join(text.split())[:_SHOWN]
        says = f"the server sent no stream, and what it sent is no answer: {shown!r}"
        failed = {"error": {"message": says, "type": "invalid_response"}}
        return [{"type": "error", **failed} if path == _MESSAGES else failed]
    return [*read(told)]


def _chat_completion_events(answer: Json) -> Iterator[Json]:
    """OpenAI's chat completions."""
    common = {name: value for name, value in answer.items() if name not in ("choices", "usage", "object")}
    common["object"] = "chat.completion.chunk"
    yield {**common, "choices": [_to_delta_choice(choice) for choice in answer["choices"]]}
    if usage := answer.get("usage"):
        yield {**common, "choices": [], "usage": usage}


def _to_delta_choice(choice: Json) -> Json:
    message: Json = dict(choice.get("message") or {})
    calls: list[Json] = message.pop("tool_calls", None) or []
    if calls:
        message["tool_calls"] = [{"index": at, **call} for at, call in enumerate(calls)]
    finish = choice.get("finish_reason") or "stop"
    return {"index": choice.get("index", 0), "delta": message, "finish_reason": finish}


def _responses_api_events(answer: Json) -> Iterator[Json]:
    """OpenAI's Responses."""
    yield {"type": "response.created", "response": {**answer, "output": [], "status": "in_progress"}}
    for at, item in enumerate(answer["output"]):
        where = {"output_index": at, "item_id": item.get("id")}
        is_text = item.get("type") == "message"
        begun: Json = {**item, "content": []} if is_text else item
        yield {"type": "response.output_item.added", "output_index": at, "item": begun}
        for number, part in enumerate(item.get("content") or () if is_text else ()):
            place = {**where, "content_index": number}
            if part.get("type") == "refusal":
                yield {**place, "type": "response.refusal.done", "refusal": part["refusal"]}
            else:
                yield {**place, "type": "response.output_text.delta", "delta": part.get("text", "")}
        yield {"type": "response.output_item.done", "output_index": at, "item": item}
    end = answer.get("status") if answer.get("status") in ("incomplete", "failed") else "completed"
    yield {"type": f"response.{end}", "response": answer}


def _anthropic_message_events(answer: Json) -> Iterator[Json]:
    """Anthropic's messages."""
    end = {name: answer.get(name) for name in ("stop_reason", "stop_sequence")}
    begun: Json = {**answer, "content": [], **dict.fromkeys(end)}
    yield {"type": "message_start", "message": begun}
    for at, block in enumerate(answer["content"]):
        start, deltas = _split_content_block(block)
        yield {"type": "content_block_start", "index": at, "content_block": start}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": at, "delta": delta}
        yield {"type": "content_block_stop", "index": at}
    yield {"type": "message_delta", "delta": end, "usage": answer.get("usage") or {"output_tokens": 0}}
    yield {"type": "message_stop"}


def _split_content_block(block: Json) -> tuple[Json, list[Json]]:
    """Return how a block begins, and what is added to it."""
    if block.get("type") == "text":
        return {**block, "text": ""}, [{"type": "text_delta", "text": block["text"]}]
    if block.get("type") == "tool_use":
        args = json.dumps(block.get("input") or {})
        return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": args}]
    if block.get("type") == "thinking":
        deltas = [{"type": "thinking_delta", "thinking": block["thinking"]}]
        deltas += [{"type": "signature_delta", "signature": block.get("signature") or ""}]
        return {**block, "thinking": "", "signature": ""}, deltas
    return block, []


_MESSAGES = "/messages"
_PROTOCOLS: Mapping[str, tuple[str, Callable[[Json], Iterator[Json]]]] = {
    "/chat/completions": ("choices", _chat_completion_events),
    "/responses": ("output", _responses_api_events),
    _MESSAGES: ("content", _anthropic_message_events),
}
"""End of a path → where its answers are, and how they are streamed."""


_ACKNOWLEDGE = getattr(socket, "TCP_QUICKACK", None)
"""Linux has it."""


async def prepare_streamed_response(response: Any) -> None:
    """Make an answer arrive in time, be heard of byte by byte, and be a stream: a response hook of httpx and httpx2.

    What came so far is acknowledged at once: a server that sends head and body apart without TCP_NODELAY keeps the body
    until then, and the kernel waits 40 ms.
    """
    stream = response.extensions.get("network_stream")
    own = stream and stream.get_extra_info("socket")
    if own and _ACKNOWLEDGE is not None:
        with suppress(OSError):  # the connection is lost: reading the body says so
            own.setsockopt(socket.IPPROTO_TCP, _ACKNOWLEDGE, 1)
    wrap_body_to_report_bytes(response)
    await convert_plain_answer_to_event_stream(response)
