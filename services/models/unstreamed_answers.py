"""unstreamed_answers: a plain answer to a request for a stream, as some gateways send it, read as a stream."""

import json
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any, cast

Json = dict[str, Any]
_STREAMED = "text/event-stream"
_SHOWN = 200
"""Characters shown of an answer that can't be read."""


async def convert_to_stream(response: Any) -> None:
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
    events = text if is_stream else "".join(map(_format_event, _to_stream_events(path, text)))
    for name in ("content-encoding", "content-length"):
        response.headers.pop(name, None)
    response.headers["content-type"] = _STREAMED
    response.stream = import_module(type(response).__module__.partition(".")[0]).ByteStream(events.encode())


def _format_event(data: Json) -> str:
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


def _completion_events(whole: Json) -> Iterator[Json]:
    """OpenAI's chat completions."""
    common = {name: value for name, value in whole.items() if name not in ("choices", "usage", "object")}
    common["object"] = "chat.completion.chunk"
    yield {**common, "choices": [_to_delta(choice) for choice in whole["choices"]]}
    if usage := whole.get("usage"):
        yield {**common, "choices": [], "usage": usage}


def _to_delta(choice: Json) -> Json:
    message: Json = dict(choice.get("message") or {})
    calls: list[Json] = message.pop("tool_calls", None) or []
    if calls:
        message["tool_calls"] = [{"index": at, **call} for at, call in enumerate(calls)]
    finish = choice.get("finish_reason") or "stop"
    return {"index": choice.get("index", 0), "delta": message, "finish_reason": finish}


def _response_events(whole: Json) -> Iterator[Json]:
    """OpenAI's Responses."""
    yield {"type": "response.created", "response": {**whole, "output": [], "status": "in_progress"}}
    for at, item in enumerate(whole["output"]):
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
    end = whole.get("status") if whole.get("status") in ("incomplete", "failed") else "completed"
    yield {"type": f"response.{end}", "response": whole}


def _message_events(whole: Json) -> Iterator[Json]:
    """Anthropic's messages."""
    end = {name: whole.get(name) for name in ("stop_reason", "stop_sequence")}
    begun: Json = {**whole, "content": [], **dict.fromkeys(end)}
    yield {"type": "message_start", "message": begun}
    for at, block in enumerate(whole["content"]):
        start, deltas = _split_block(block)
        yield {"type": "content_block_start", "index": at, "content_block": start}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": at, "delta": delta}
        yield {"type": "content_block_stop", "index": at}
    yield {"type": "message_delta", "delta": end, "usage": whole.get("usage") or {"output_tokens": 0}}
    yield {"type": "message_stop"}


def _split_block(block: Json) -> tuple[Json, list[Json]]:
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
    "/chat/completions": ("choices", _completion_events),
    "/responses": ("output", _response_events),
    _MESSAGES: ("content", _message_events),
}
"""End of a path → where its answers are, and how they are streamed."""
