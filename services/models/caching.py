"""caching: marks up to where a provider keeps a request, so that the next one reads the same start from its cache.

Anthropic and Bedrock read from a cache only what an earlier request marked, and look for it at each mark of this
request and up to 20 blocks before it. So a request marks the end of what the last one sent, which finds it however
many calls one turn made, and its own end for the next one. The system prompt and the opening of the conversation have
marks, too: they outlive compression. OpenAI caches unmarked, per machine, and finds the machine by a key.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple, cast

from interlock.services.models.request import ModelRequest
from interlock.state.messages import DataPart, Message

_MOST = 4
"""Marks that Anthropic and Bedrock accept."""
_KEY_LENGTH = 32
_WITHOUT = (
    *("claude-v2", "claude-instant", "claude-3-sonnet", "claude-3-haiku", "claude-3-opus"),
    "claude-3-5-sonnet-20240620",
)
"""Claude models whose requests Bedrock refuses if they have a mark."""
_CLAUDE = "anthropic/claude"
"""How Claude's models begin behind OpenRouter and other gateways, which pass marks on."""
Json = dict[str, Any]


class CachePlan(NamedTuple):
    """Where the marks of one request go, counted in what providers merge: messages of the person's side."""

    opening: int
    """Blocks of content before the conversation proper."""
    shared: int
    """Sides of the person that the last request ended with or had before; 0: none."""
    sides: int


class CachePlans:
    """Plans the marks of each request of a conversation after the one before it."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, str], Sequence[Message]] = {}

    def plan_marks_and_remember_request(self, request: ModelRequest) -> CachePlan | None:
        """Return where to mark the request; None if no later request will begin with it."""
        if not _is_conversation_request(request):
            return None
        messages = [m for m in request.messages if m.role != "system"]
        ends = [*_iterate_request_end_indexes(messages)]
        before = self._last.get((request.agent, request.role))
        self._last[request.agent, request.role] = messages
        shared = len(ends) - 1
        if before is not None:
            same = _common_prefix_length(before, messages)
            shared = sum(end < same for end in ends[:-1])
        opening = 0
        for message in messages:
            if message.origin != "context":
                break
            data = any(isinstance(part, DataPart) for part in message.content)
            opening += len(message.content) if data else 1  # parts of text are sent as one
        return CachePlan(opening, shared, len(ends))


def _is_conversation_request(request: ModelRequest) -> bool:
    """Return whether more requests follow that begin as this one does: helpers ask once."""
    return request.schema is None and (bool(request.tools) or request.role == "main")


def _iterate_request_end_indexes(messages: Sequence[Message]) -> Iterator[int]:
    """Yield the index of each message that an answer follows, and of the last: where a request ended."""
    for index, message in enumerate(messages):
        last = index + 1 == len(messages)
        if message.role != "assistant" and (last or messages[index + 1].role == "assistant"):
            yield index


def _common_prefix_length(a: Sequence[Message], b: Sequence[Message]) -> int:
    same = 0
    for one, other in zip(a, b, strict=False):
        if one is not other and one != other:
            break
        same += 1
    return same


_MARKED = ("ChatAnthropic", "ChatBedrockConverse", "ChatOpenAI")
"""Client classes whose requests can carry marks."""


def supports_cache_marks(client_class: str, model: str) -> bool:
    """Return whether requests to the model carry marks; `client_class`: its client class, `model`: without the
    provider."""
    return client_class in _MARKED and (client_class != "ChatOpenAI" or model.startswith(_CLAUDE))


def conversation_cache_key(request: ModelRequest) -> str:
    """Return a key that stays the same while a conversation grows, is resumed, forked or compressed."""
    parts: list[str] = [request.model, *(tool.name for tool in request.tools)]
    for message in request.messages:
        if message.role != "system" and message.origin != "context":
            break
        parts.append(message.text)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:_KEY_LENGTH]


def add_anthropic_cache_marks(payload: Json, plan: CachePlan) -> None:
    """Mark a request of Anthropic's protocol in place: system prompt, opening, what was sent before, and the end."""
    mark = {"type": "ephemeral"}
    left = _MOST
    if payload.get("system"):
        blocks = _convert_field_to_blocks(payload, "system")
        blocks[-1] = {**blocks[-1], "cache_control": mark}
        left -= 1
    for content, at in _blocks_to_mark(payload.get("messages") or [], plan, left):
        content[at] = {**content[at], "cache_control": mark}
        left -= 1
    if left and payload.get("tools"):
        *others, last = payload["tools"]
        payload["tools"] = [*others, {**last, "cache_control": mark}]


def add_bedrock_cache_marks(
    model: str, system: list[Json], messages: list[Json], params: Json, plan: CachePlan
) -> None:
    """Mark a request of Bedrock's Converse in place, if its model takes marks."""
    nova = "amazon.nova" in model
    if not nova and ("anthropic.claude" not in model or any(name in model for name in _WITHOUT)):
        return
    point: Json = {"cachePoint": {"type": "default"}}
    left = _MOST
    if system:
        system.append(point)
        left -= 1
    taken = [m for m in messages if not nova or not _has_tool_blocks(m)]
    for content, at in sorted(_blocks_to_mark(taken, plan, left), key=lambda place: -place[1]):
        content.insert(at + 1, point)
        left -= 1
    config: Json = params.get("toolConfig") or {}
    tools: list[Json] | None = config.get("tools")
    if left and tools and not nova:
        tools.append(point)


def add_chat_completion_cache_marks(messages: list[Json], plan: CachePlan) -> None:
    """Mark a chat completion in place, for a gateway to Claude: the person's side are users' and tools' messages."""
    left = _MOST
    places: list[tuple[list[Any], int]] = []
    systems = [m for m in messages if m["role"] == "system"]
    if systems and systems[-1].get("content"):
        content = _convert_field_to_blocks(systems[-1], "content")
        places.append((content, len(content) - 1))
        left -= 1
    talk = [m for m in messages if m["role"] != "system"]
    sides = [[*side] for is_model, side in groupby(talk, lambda m: m["role"] == "assistant") if not is_model]
    if sides:
        shared = plan.shared + len(sides) - plan.sides if plan.shared else 0
        ends = [len(sides), shared] if 0 < shared < len(sides) else [len(sides)]
        for number in ends:
            content = _convert_field_to_blocks(sides[number - 1][-1], "content")
            if (at := _last_markable_block_index(content)) is not None:
                places.append((content, at))
                left -= 1
        if left and 0 < plan.opening < len(sides[0]):
            content = _convert_field_to_blocks(sides[0][plan.opening - 1], "content")
            places.append((content, len(content) - 1))
    for content, at in places:
        content[at] = {**content[at], "cache_control": {"type": "ephemeral"}}


def _blocks_to_mark(messages: list[Json], plan: CachePlan, limit: int) -> list[tuple[list[Any], int]]:
    """Return the blocks to mark, as a message's content and an index in it: the last first, as they matter most."""
    asked = [m for m in messages if m["role"] == "user"]
    if not asked:
        return []
    shared = plan.shared + len(asked) - plan.sides if plan.shared else 0
    ends = [len(asked), shared] if 0 < shared < len(asked) else [len(asked)]
    contents = {number: _convert_field_to_blocks(asked[number - 1], "content") for number in (*ends, 1)}
    found = [
        (contents[number], at)
        for number in ends
        if (at := _last_markable_block_index(contents[number])) is not None
    ]
    if 0 < plan.opening < len(contents[1]):
        found.append((contents[1], plan.opening - 1))
    return found[:limit]


def _convert_field_to_blocks(holder: Json, field: str) -> list[Any]:
    """Return the blocks of a system prompt or of a message: a text becomes the only one."""
    if isinstance(holder[field], str):
        holder[field] = [{"type": "text", "text": holder[field]}]
    holder[field] = [*holder[field]]
    return holder[field]


def _last_markable_block_index(content: Sequence[Any]) -> int | None:
    """Return the index of the last block that can be marked: an empty text can't."""
    for at in range(len(content) - 1, -1, -1):
        block = content[at]
        if isinstance(block, dict) and cast(Mapping[str, Any], block).get("text", " "):
            return at
    return None


def _has_tool_blocks(message: Json) -> bool:
    """Return whether it has calls or their results, beside which Nova takes no marks."""
    return any("toolUse" in block or "toolResult" in block for block in message["content"])
