"""thinking_server: a server of six protocols whose answers think, call and speak in many pieces.

It answers by the results that a request has: the first without any, the second with one. It can hold an answer in the
middle until it is told to go on, so that who asked can be killed meanwhile.
"""

import base64
import json
import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from typing import Any, NamedTuple

from caching_server import event_frame
from serving import Quiet

Json = dict[str, Any]
PIECES = 40
SPEAKS = json.dumps({"reasoning": "An answer.", "next_speaker": "user"})


class Turn(NamedTuple):
    """One answer."""

    thought: str
    text: str = ""
    tool: str = ""
    args: Json = {}  # noqa: RUF012 - never changed

    @property
    def signature(self) -> str:
        return base64.b64encode(f"signed {self.thought}".encode()).decode()

    @property
    def call_id(self) -> str:
        return f"call_{self.tool}"


class ThinkingServer(ThreadingHTTPServer):
    """Answers with its `turns`. `hold` names a turn, and the share of its pieces that are sent before it waits."""

    daemon_threads = True

    def __init__(self, turns: list[Turn]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.turns = turns
        self.bodies: list[bytes] = []
        self.asked: list[int] = []
        """Numbers of the turns, in the order in which they were asked for."""
        self.hold: tuple[int, float] | None = None
        self.held, self.go_on = threading.Event(), threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, *_: Any) -> None:
        """Who asked was killed."""


class _Handler(Quiet):
    server: ThinkingServer

    def do_GET(self) -> None:
        self.answer(404)

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers["Content-Length"]))
        body = json.loads(raw)
        speaks = _protocol(self.path)
        if speaks is None:
            return self.answer(404)
        write, kind = speaks
        if not (body.get("tools") or body.get("toolConfig")):
            pieces = [*write(Turn("", SPEAKS))]
            return self.answer(200, b"".join(pieces), kind)
        number = _results(body)
        self.server.bodies.append(raw)
        self.server.asked.append(number)
        pieces = [*write(self.server.turns[number])]
        stop = -1
        if self.server.hold and self.server.hold[0] == number:
            stop, self.server.hold = int(len(pieces) * self.server.hold[1]), None
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.end_headers()
        for at, piece in enumerate(pieces):
            if at == stop:
                self.wfile.flush()
                self.server.held.set()
                self.server.go_on.wait(60)
            self.wfile.write(piece)


def _protocol(path: str) -> Any:
    """Return what writes an answer for this path, and the type of its content."""
    ends = {
        "/chat/completions": (_chat, "text/event-stream"),
        "/responses": (_responses, "text/event-stream"),
        "/messages": (_anthropic, "text/event-stream"),
        "/converse-stream": (_converse, "application/vnd.amazon.eventstream"),
        "/api/chat": (_ollama, "application/x-ndjson"),
        "GenerateContent?alt=sse": (_gemini, "text/event-stream"),
    }
    return next((found for end, found in ends.items() if path.endswith(end)), None)


def _results(value: Any) -> int:
    """Count the results of calls in a request, whatever the protocol."""
    if isinstance(value, list):
        return sum(map(_results, value))
    if not isinstance(value, dict):
        return 0
    kinds = ("tool_result", "function_call_output")
    is_result = value.get("type") in kinds or value.get("role") == "tool"
    return is_result + ("toolResult" in value) + ("functionResponse" in value) + _results([*value.values()])


def _cut(text: str) -> list[str]:
    size = max(1, len(text) // PIECES)
    return [text[at : at + size] for at in range(0, len(text), size)]


def _sse(data: Json) -> bytes:
    name = f"event: {data['type']}\n" if "type" in data else ""
    return f"{name}data: {json.dumps(data)}\n\n".encode()


def _chat(turn: Turn) -> Iterator[bytes]:
    """As OpenRouter does."""

    def chunk(delta: Json, finish: str | None = None) -> bytes:
        choices = [{"index": 0, "delta": delta, "finish_reason": finish}]
        about = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        return _sse({**about, "choices": choices})

    yield chunk({"role": "assistant", "content": ""})
    for text in _cut(turn.thought):
        detail = {"type": "reasoning.text", "index": 0, "text": text}
        yield chunk({"reasoning": text, "reasoning_details": [detail]})
    if turn.thought:
        detail = {"type": "reasoning.text", "index": 0, "signature": turn.signature}
        yield chunk({"reasoning_details": [detail]})
    for text in _cut(turn.text):
        yield chunk({"content": text})
    if turn.tool:
        function: Json = {"name": turn.tool, "arguments": ""}
        call = {"index": 0, "id": turn.call_id, "type": "function", "function": function}
        yield chunk({"tool_calls": [call]})
        for text in _cut(json.dumps(turn.args)):
            yield chunk({"tool_calls": [{"index": 0, "function": {"arguments": text}}]})
    yield chunk({}, "tool_calls" if turn.tool else "stop")
    usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
    yield _sse({"id": "x", "object": "chat.completion.chunk", "choices": [], "usage": usage})
    yield b"data: [DONE]\n\n"


def _responses(turn: Turn) -> Iterator[bytes]:
    about: Json = {"id": "r", "object": "response", "created_at": 1, "model": "m", "output": []}
    about |= {"parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
    yield _sse({"type": "response.created", "response": {**about, "status": "in_progress"}})
    if turn.thought:
        item: Json = {"type": "reasoning", "id": f"rs_{turn.tool}", "summary": []}
        where: Json = {"output_index": 0, "item_id": item["id"], "summary_index": 0}
        yield _sse({"type": "response.output_item.added", "output_index": 0, "item": item})
        part = {"type": "summary_text", "text": ""}
        yield _sse({"type": "response.reasoning_summary_part.added", "part": part, **where})
        for text in _cut(turn.thought):
            yield _sse({"type": "response.reasoning_summary_text.delta", "delta": text, **where})
        summary = [{"type": "summary_text", "text": turn.thought}]
        done = {**item, "summary": summary, "encrypted_content": turn.signature}
        yield _sse({"type": "response.output_item.done", "output_index": 0, "item": done})
    for text in _cut(turn.text):
        where = {"output_index": 1, "content_index": 0, "item_id": f"msg_{turn.tool}"}
        yield _sse({"type": "response.output_text.delta", "delta": text, **where})
    if turn.tool:
        item = {"type": "function_call", "id": f"fc_{turn.tool}", "call_id": turn.call_id}
        item |= {"name": turn.tool, "arguments": ""}
        yield _sse({"type": "response.output_item.added", "output_index": 2, "item": item})
        for text in _cut(json.dumps(turn.args)):
            where = {"output_index": 2, "item_id": item["id"]}
            yield _sse({"type": "response.function_call_arguments.delta", "delta": text, **where})
    details: Json = {"input_tokens_details": {"cached_tokens": 0}}
    details["output_tokens_details"] = {"reasoning_tokens": 0}
    usage = {"input_tokens": 100, "output_tokens": 10, "total_tokens": 110, **details}
    yield _sse({"type": "response.completed", "response": {**about, "status": "completed", "usage": usage}})


def _anthropic(turn: Turn) -> Iterator[bytes]:
    about: Json = {"id": "m", "type": "message", "role": "assistant", "model": "claude", "content": []}
    about |= {"stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": 100, "output_tokens": 1}}
    yield _sse({"type": "message_start", "message": about})
    blocks: list[tuple[Json, list[Json]]] = []
    if turn.thought:
        deltas: list[Json] = [{"type": "thinking_delta", "thinking": text} for text in _cut(turn.thought)]
        deltas.append({"type": "signature_delta", "signature": turn.signature})
        blocks.append(({"type": "thinking", "thinking": "", "signature": ""}, deltas))
    if turn.text:
        deltas = [{"type": "text_delta", "text": text} for text in _cut(turn.text)]
        blocks.append(({"type": "text", "text": ""}, deltas))
    if turn.tool:
        deltas = [{"type": "input_json_delta", "partial_json": t} for t in _cut(json.dumps(turn.args))]
        blocks.append(({"type": "tool_use", "id": turn.call_id, "name": turn.tool, "input": {}}, deltas))
    for at, (block, deltas) in enumerate(blocks):
        yield _sse({"type": "content_block_start", "index": at, "content_block": block})
        for delta in deltas:
            yield _sse({"type": "content_block_delta", "index": at, "delta": delta})
        yield _sse({"type": "content_block_stop", "index": at})
    end = {"stop_reason": "tool_use" if turn.tool else "end_turn", "stop_sequence": None}
    usage = {"input_tokens": 100, "output_tokens": 10}
    yield _sse({"type": "message_delta", "delta": end, "usage": usage})
    yield _sse({"type": "message_stop"})


def _converse(turn: Turn) -> Iterator[bytes]:
    yield event_frame("messageStart", {"role": "assistant"})
    blocks: list[tuple[Json, list[Json]]] = []
    if turn.thought:
        deltas: list[Json] = [{"reasoningContent": {"text": text}} for text in _cut(turn.thought)]
        blocks.append(({}, [*deltas, {"reasoningContent": {"signature": turn.signature}}]))
    if turn.text:
        blocks.append(({}, [{"text": text} for text in _cut(turn.text)]))
    if turn.tool:
        start = {"toolUse": {"toolUseId": turn.call_id, "name": turn.tool}}
        blocks.append((start, [{"toolUse": {"input": text}} for text in _cut(json.dumps(turn.args))]))
    for at, (start, deltas) in enumerate(blocks):
        if start:
            yield event_frame("contentBlockStart", {"start": start, "contentBlockIndex": at})
        for delta in deltas:
            yield event_frame("contentBlockDelta", {"delta": delta, "contentBlockIndex": at})
        yield event_frame("contentBlockStop", {"contentBlockIndex": at})
    yield event_frame("messageStop", {"stopReason": "tool_use" if turn.tool else "end_turn"})
    usage = {"inputTokens": 100, "outputTokens": 10, "totalTokens": 110}
    yield event_frame("metadata", {"usage": usage, "metrics": {"latencyMs": 1}})


def _ollama(turn: Turn) -> Iterator[bytes]:
    def line(message: Json, **more: Any) -> bytes:
        said = {"role": "assistant", "content": "", **message}
        about = {"model": "m", "created_at": "2026-01-01T00:00:00Z", "done": False}
        return json.dumps({**about, "message": said, **more}).encode() + b"\n"

    for text in _cut(turn.thought):
        yield line({"thinking": text})
    for text in _cut(turn.text):
        yield line({"content": text})
    if turn.tool:
        yield line({"tool_calls": [{"function": {"name": turn.tool, "arguments": turn.args}}]})
    counts = {"prompt_eval_count": 100, "eval_count": 10, "total_duration": 1, "eval_duration": 1}
    yield line({}, done=True, done_reason="stop", **counts)


def _gemini(turn: Turn) -> Iterator[bytes]:
    def chunk(parts: list[Json], **more: Any) -> bytes:
        usage = {"promptTokenCount": 100, "candidatesTokenCount": 10, "totalTokenCount": 110}
        candidate = {"content": {"role": "model", "parts": parts}, "index": 0, **more}
        return _sse({"candidates": [candidate], "usageMetadata": usage, "modelVersion": "m"})

    for text in _cut(turn.thought):
        yield chunk([{"text": text, "thought": True}])
    for text in _cut(turn.text):
        yield chunk([{"text": text}])
    if turn.tool:
        call = {"name": turn.tool, "args": turn.args, "id": turn.call_id}
        yield chunk([{"functionCall": call, "thoughtSignature": turn.signature}])
    yield chunk([{"text": ""}], finishReason="STOP")
