"""whole_answers: a plain answer to a streamed chat completion, as some gateways send it, read as a stream."""

import json
from importlib import import_module
from typing import Any, cast

_STREAMED, _PATH = "text/event-stream", "/chat/completions"
_SHOWN = 200
"""Characters shown of an answer that can't be read."""


async def read_as_stream(response: Any) -> None:
    """Replace a plain answer by the events of a stream: a response hook of httpx and httpx2."""
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if response.status_code != 200 or kind not in ("application/json", "text/html", "text/plain"):
        return
    request = response.request
    if not request.url.path.endswith(_PATH) or not json.loads(request.content).get("stream"):
        return
    raw = b"".join([piece async for piece in response.stream])
    await response.stream.aclose()
    text: str = type(response)(200, headers=response.headers, content=raw).text
    if text.lstrip().startswith("data:"):  # a stream under another name
        events = text
    else:
        events = "".join(f"data: {json.dumps(event)}\n\n" for event in events_of(text)) + "data: [DONE]\n\n"
    for name in ("content-encoding", "content-length"):
        response.headers.pop(name, None)
    response.headers["content-type"] = _STREAMED
    response.stream = import_module(type(response).__module__.partition(".")[0]).ByteStream(events.encode())


def events_of(text: str) -> list[dict[str, Any]]:
    """Return the chunks that a whole chat completion stands for, or an error that says what came instead."""
    try:
        whole: Any = json.loads(text)
    except ValueError:
        whole = None
    told = cast("dict[str, Any]", whole) if isinstance(whole, dict) else {}
    if told.get("error"):
        return [told]
    choices: Any = told.get("choices")
    if not isinstance(choices, list) or not all(isinstance(c, dict) for c in cast("list[Any]", choices)):
        shown = " ".join(text.split())[:_SHOWN]
        says = f"the server sent no stream, and what it sent is no chat completion: {shown!r}"
        return [{"error": {"message": says, "type": "invalid_response"}}]
    common = {name: value for name, value in told.items() if name not in ("choices", "usage", "object")}
    common["object"] = "chat.completion.chunk"
    chunk = {**common, "choices": [_delta(c) for c in cast("list[dict[str, Any]]", choices)]}
    usage = told.get("usage")
    return [chunk, *([{**common, "choices": [], "usage": usage}] if usage else [])]


def _delta(choice: dict[str, Any]) -> dict[str, Any]:
    message: dict[str, Any] = dict(choice.get("message") or {})
    calls: list[dict[str, Any]] = message.pop("tool_calls", None) or []
    if calls:
        message["tool_calls"] = [{"index": at, **call} for at, call in enumerate(calls)]
    finish = choice.get("finish_reason") or "stop"
    return {"index": choice.get("index", 0), "delta": message, "finish_reason": finish}
