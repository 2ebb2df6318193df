"""caching_server: a server of Anthropic's, Bedrock's and OpenAI's protocols that caches as the vendors say they do.

It keeps the start of a request up to each mark. At each mark it reads the longest start that it kept at this block or
up to 20 blocks before. It needs a minimum of tokens, and forgets after five minutes without use. As OpenAI it keeps
what came with the same key, in steps of 128 tokens.
"""

import binascii
import hashlib
import json
import struct
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from typing import Any, NamedTuple

from serving import Quiet

LOOK_BACK, LIFETIME_S, STEP = 20, 300, 128
Json = dict[str, Any]


class Read(NamedTuple):
    """One request of the conversation, in tokens."""

    total: int
    shared: int
    """With the request before it."""
    cached: int
    written: int
    marks: int


class CachingServer(ThreadingHTTPServer):
    """Answers with its `turns`: a text, or (name, arguments) of calls. `now` is its clock."""

    daemon_threads = True

    def __init__(self, minimum: int = 1024) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.minimum, self.now = minimum, 0.0
        self.turns: list[Any] = []
        self.reads: list[Read] = []
        self.bodies: list[Json] = []
        self.helpers: list[str] = []
        """Models that were asked for something else than the conversation."""
        self._kept: dict[str, float] = {}
        self._last: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def read(self, blocks: list[str], marks: list[int], key: str) -> Read:
        """Use the cache for the blocks of a request; `marks`: numbers of blocks up to which it is marked."""
        sizes = [len(block) // 4 for block in blocks]
        total = sum(sizes)
        names = [*_names(blocks, key)]
        same = next((i for i, (a, b) in enumerate(zip(blocks, self._last, strict=False)) if a != b), None)
        shared = sum(sizes[: len(self._last) if same is None else same])
        self._last = blocks
        if marks == [-1]:
            marks, back = [*range(1, len(blocks) + 1)], len(blocks)
        else:
            assert len(marks) <= 4, "at most four"
            back = LOOK_BACK
        cached = 0
        for mark in marks:
            for at in range(mark, max(0, mark - back - 1), -1):
                if self.now - self._kept.get(names[at - 1], -LIFETIME_S - 1) <= LIFETIME_S:
                    cached = max(cached, sum(sizes[:at]))
                    self._kept[names[at - 1]] = self.now
                    break
        most = 0
        for mark in marks:
            if (size := sum(sizes[:mark])) >= self.minimum:
                self._kept[names[mark - 1]] = self.now
                most = max(most, size)
        return Read(total, shared, cached, max(0, most - cached), len(marks))


def _names(blocks: list[str], key: str) -> Iterator[str]:
    digest = hashlib.sha256(key.encode())
    for block in blocks:
        digest.update(block.encode())
        yield digest.hexdigest()


def _split(parts: list[Any], marked: str) -> tuple[list[str], list[int]]:
    """The blocks in the order in which they are cached, without their marks, and the places of those."""
    blocks: list[str] = []
    marks: list[int] = []
    for part in parts:
        if part == {"cachePoint": {"type": "default"}}:
            marks.append(len(blocks))
            continue
        blocks.append(json.dumps({k: v for k, v in part.items() if k != marked}))
        if marked in part:
            assert part.get("text", " "), "an empty text can't be marked"
            marks.append(len(blocks))
    return blocks, marks


class Handler(Quiet):
    server: CachingServer

    def do_POST(self) -> None:
        server, body = self.server, json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        tools = body.get("tools") or (body.get("toolConfig") or {}).get("tools") or []
        if not tools:
            server.helpers.append(body.get("model") or self.path)
            answer: Any = "<state_snapshot><overall_goal>go on</overall_goal></state_snapshot>"
            read = Read(100, 0, 0, 0, 0)
        else:
            system = body.get("system") or []
            parts = [*tools, *([{"text": system}] if isinstance(system, str) else system)]
            for message in body["messages"]:
                content = message["content"]
                if "prompt_cache_key" in body or "role" not in message:
                    parts.append(message)
                elif isinstance(content, list):
                    parts += content
                else:  # a text alone is the same as the only block of a list
                    calls = message.get("tool_calls") or []
                    parts += [*([{"type": "text", "text": content}] if content else []), *calls]
            blocks, marks = _split(parts, "cache_control")
            key = body.get("prompt_cache_key", "")
            read = server.read(blocks, [-1] if key else marks, key)
            server.bodies.append(body)
            server.reads.append(read)
            answer = server.turns.pop(0)
        if "converse" in self.path:
            self.answer(200, b"".join(_bedrock(answer, read)), "application/vnd.amazon.eventstream")
        elif self.path.endswith("/chat/completions"):
            self.answer(200, b"".join(_openai(answer, read)), "text/event-stream")
        else:
            self.answer(200, b"".join(_anthropic(answer, read)), "text/event-stream")


def _calls(answer: Any) -> list[tuple[str, str, str]]:
    """Id, name and arguments of each call."""
    made = [] if isinstance(answer, str) else answer
    return [
        (hashlib.md5(f"{n}{name}{args}".encode()).hexdigest()[:9], name, json.dumps(args))
        for n, (name, args) in enumerate(made)
    ]


def _anthropic(answer: Any, read: Read) -> Iterator[bytes]:
    used = {"input_tokens": read.total - read.cached - read.written, "output_tokens": 1}
    used |= {"cache_read_input_tokens": read.cached, "cache_creation_input_tokens": read.written}
    about = {"id": "m", "type": "message", "role": "assistant", "model": "claude", "content": []}
    end: Json = {"stop_reason": None, "stop_sequence": None}
    events: list[Json] = [{"type": "message_start", "message": {**about, **end, "usage": used}}]
    contents: list[tuple[Json, Json]] = [
        (
            {"type": "tool_use", "id": f"toolu_{i}", "name": n, "input": {}},
            {"type": "input_json_delta", "partial_json": a},
        )
        for i, n, a in _calls(answer)
    ]
    if isinstance(answer, str):
        contents = [({"type": "text", "text": ""}, {"type": "text_delta", "text": answer})]
    for at, (block, delta) in enumerate(contents):
        events.append({"type": "content_block_start", "index": at, "content_block": block})
        events.append({"type": "content_block_delta", "index": at, "delta": delta})
        events.append({"type": "content_block_stop", "index": at})
    reason = "end_turn" if isinstance(answer, str) else "tool_use"
    events.append(
        {
            "type": "message_delta",
            "delta": {**end, "stop_reason": reason},
            "usage": {**used, "output_tokens": 20},
        }
    )
    for event in (*events, {"type": "message_stop"}):
        yield f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()


def _openai(answer: Any, read: Read) -> Iterator[bytes]:
    calls = [
        {"index": at, "id": f"call_{i}", "type": "function", "function": {"name": n, "arguments": a}}
        for at, (i, n, a) in enumerate(_calls(answer))
    ]
    delta: Json = (
        {"role": "assistant", "content": answer} if isinstance(answer, str) else {"tool_calls": calls}
    )
    cached = read.cached if read.marks > 1 else read.cached // STEP * STEP
    used = {"prompt_tokens": read.total, "completion_tokens": 20, "total_tokens": read.total + 20}
    of_input = {"cached_tokens": cached, "cache_write_tokens": read.written}
    used |= {"prompt_tokens_details": of_input}  # type: ignore[dict-item]
    finish = "stop" if isinstance(answer, str) else "tool_calls"
    for choices, usage in (
        ([{"index": 0, "delta": delta, "finish_reason": None}], None),
        ([{"index": 0, "delta": {}, "finish_reason": finish}], None),
        ([], used),
    ):
        chunk = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices}
        yield f"data: {json.dumps({**chunk, 'usage': usage})}\n\n".encode()
    yield b"data: [DONE]\n\n"


def _bedrock(answer: Any, read: Read) -> Iterator[bytes]:
    yield event_frame("messageStart", {"role": "assistant"})
    for at, (i, name, args) in enumerate(_calls(answer)):
        start = {"toolUse": {"toolUseId": f"tooluse_{i}", "name": name}}
        yield event_frame("contentBlockStart", {"start": start, "contentBlockIndex": at})
        yield event_frame(
            "contentBlockDelta", {"delta": {"toolUse": {"input": args}}, "contentBlockIndex": at}
        )
        yield event_frame("contentBlockStop", {"contentBlockIndex": at})
    if isinstance(answer, str):
        yield event_frame("contentBlockDelta", {"delta": {"text": answer}, "contentBlockIndex": 0})
        yield event_frame("contentBlockStop", {"contentBlockIndex": 0})
    yield event_frame("messageStop", {"stopReason": "end_turn" if isinstance(answer, str) else "tool_use"})
    used = {"inputTokens": read.total - read.cached - read.written, "outputTokens": 20}
    used |= {"cacheReadInputTokens": read.cached, "cacheWriteInputTokens": read.written}
    yield event_frame(
        "metadata", {"usage": {**used, "totalTokens": read.total + 20}, "metrics": {"latencyMs": 1}}
    )


def event_frame(kind: str, payload: Json) -> bytes:
    """One message of AWS's event stream."""
    headers = b""
    named = {":event-type": kind, ":content-type": "application/json", ":message-type": "event"}
    for name, value in named.items():
        headers += (
            bytes([len(name)]) + name.encode() + b"\x07" + struct.pack(">H", len(value)) + value.encode()
        )
    body = json.dumps(payload).encode()
    head = struct.pack(">II", 16 + len(headers) + len(body), len(headers))
    whole = head + struct.pack(">I", binascii.crc32(head)) + headers + body
    return whole + struct.pack(">I", binascii.crc32(whole))
