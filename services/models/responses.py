"""responses: what the client of OpenAI's Responses lacks: thoughts in plain text, and answers that go back complete."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

_RAW = "response.reasoning_text.delta"


class ThoughtfulClient:
    """OpenAI's client with the thoughts that open models tell in plain text.

    `langchain-openai` 1.7.4 drops their events: the thoughts are lost, and nothing comes while they stream.
    """

    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    @property
    def responses(self) -> "_ResponsesApi":
        return _ResponsesApi(self._client.responses)


class _ResponsesApi:
    def __init__(self, responses: Any) -> None:
        self._responses = responses

    async def create(self, **payload: Any) -> Any:
        answer = await self._responses.create(**payload)
        return _EventsWithThoughts(answer) if payload.get("stream") else answer


class _EventsWithThoughts:
    """The events of an answer. Plain thoughts become the beginnings of items, which the client converts."""

    def __init__(self, source: Any) -> None:
        self._source = source

    async def __aenter__(self) -> "_EventsWithThoughts":
        await self._source.__aenter__()
        return self

    async def __aexit__(self, *raised: Any) -> None:
        await self._source.__aexit__(*raised)

    async def __aiter__(self) -> AsyncGenerator[Any, None]:
        told: set[str] = set()
        begun_whole: set[str] = set()
        async for event in self._source:
            if event.type == _RAW:
                told.add(event.item_id)
                if event.item_id not in begun_whole:
                    yield _make_thought_event(
                        event.item_id, event.delta, event.content_index, event.output_index
                    )
                continue
            item: Any = getattr(event, "item", None)
            if getattr(item, "type", "") == "reasoning" and (parts := getattr(item, "content", None)):
                if event.type.endswith(".added"):
                    begun_whole.add(item.id)
                elif item.id not in told | begun_whole:
                    for at, part in enumerate(parts):
                        yield _make_thought_event(item.id, part.text, at, event.output_index)
            yield event


def _make_thought_event(item: str, text: str, at: int, output_index: int) -> "_Added":
    return _Added(_RawThought(item, text, at), output_index)


@dataclass(frozen=True)
class _RawThought:
    id: str
    text: str
    at: int
    type: str = "reasoning"

    def model_dump(self, **_: Any) -> dict[str, Any]:
        part = {"type": "reasoning_text", "text": self.text, "index": self.at}
        return {"type": self.type, "id": self.id, "summary": [], "content": [part]}


@dataclass(frozen=True)
class _Added:
    item: _RawThought
    output_index: int
    type: str = "response.output_item.added"


def complete_responses_input(items: Sequence[Any]) -> list[Any]:
    """Return the input as the protocol wants it: pictures with their detail, and answers' texts as plain messages.

    A message made of output needs the id of that output.
    """
    return [
        _to_plain_message(item) if _is_unnamed_answer(item) else _set_picture_details(item) for item in items
    ]


def _set_picture_details(item: Any) -> Any:
    parts: Any = cast("Mapping[str, Any]", item).get("content") if isinstance(item, dict) else None
    for part in cast("list[Any]", parts) if isinstance(parts, list) else []:
        if part.get("type") == "input_image":
            part.setdefault("detail", "auto")
    return cast(Any, item)


def _is_unnamed_answer(item: Any) -> bool:
    if not isinstance(item, dict):
        return False
    found = cast("Mapping[str, Any]", item)
    return found.get("role") == "assistant" and isinstance(found.get("content"), list) and not found.get("id")


def _to_plain_message(item: Mapping[str, Any]) -> dict[str, Any]:
    text = "".join(part.get("text") or part.get("refusal") or "" for part in item["content"])
    return {**item, "type": "message", "content": text}
