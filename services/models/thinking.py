"""thinking: a model's thoughts as its provider sends them, and what of them the provider wants back.

Providers that sign or encrypt thoughts refuse, or answer worse, a conversation from which they are missing: Anthropic
and Bedrock beside calls, OpenAI's Responses, OpenRouter (`reasoning_details`), DeepSeek beside calls. They are kept as
they came, and go only to the model that made them."""

import base64
import json
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, cast

from langchain_core.messages import AIMessage, AIMessageChunk

from interlock.services.models.options import is_thinking_deepseek_model
from interlock.state.messages import Opaque
from interlock.state.text import clean_json

_RAW = "response.reasoning_text.delta"


class ThoughtStreamingClient:
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


def _make_thought_event(item_id: str, text: str, content_index: int, output_index: int) -> "_Added":
    return _Added(_RawThought(item_id, text, content_index), output_index)


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


def normalize_responses_input(items: Sequence[Any]) -> list[Any]:
    """Return the input as the protocol wants it: pictures with their detail, and answers' texts as plain messages.

    A message made of output needs the id of that output.
    """
    return [
        _to_plain_message(item) if _is_answer_without_id(item) else _set_default_image_detail(item)
        for item in items
    ]


def _set_default_image_detail(item: Any) -> Any:
    parts: Any = cast("Mapping[str, Any]", item).get("content") if isinstance(item, dict) else None
    for part in cast("list[Any]", parts) if isinstance(parts, list) else []:
        if part.get("type") == "input_image":
            part.setdefault("detail", "auto")
    return cast(Any, item)


def _is_answer_without_id(item: Any) -> bool:
    if not isinstance(item, dict):
        return False
    found = cast("Mapping[str, Any]", item)
    return found.get("role") == "assistant" and isinstance(found.get("content"), list) and not found.get("id")


def _to_plain_message(item: Mapping[str, Any]) -> dict[str, Any]:
    text = "".join(part.get("text") or part.get("refusal") or "" for part in item["content"])
    return {**item, "type": "message", "content": text}


_BLOCKS = ("thinking", "redacted_thinking", "reasoning_content", "reasoning")
"""Types of content blocks that hold thinking: Anthropic's, Bedrock's, and Responses'."""
_FIELDS = "interlock_thinking"
"""Key of a message's `additional_kwargs` with fields that go back."""
_DELTA = "interlock_reasoning"
"""Key of a piece's `response_metadata` with the fields of thinking in OpenAI's chat completions."""
_TEXTS = ("reasoning_content", "reasoning")
"""Names of the text of thoughts in chat completions: of DeepSeek, xAI and vLLM; of OpenRouter, Ollama and others."""
_TOLD = (*_TEXTS, "reasoning_details", "refusal")
"""Fields of a piece that LangChain drops."""
_PHASE = "phase"
"""What OpenAI's newer models call a text: commentary, or the final answer. They want it back."""
_JOINED = ("text", "summary")
"""Parts of an entry of `reasoning_details` that arrive in pieces."""
_REASONING = re.compile(r"gpt-[5-9]|o\d|codex|computer-use")
"""OpenAI's models that encrypt their thinking; others refuse to be asked for it."""


class ThoughtCollector:
    """Gathers the thoughts of one answer while it streams."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._field = ""
        self._text: list[str] = []
        self._details: list[dict[str, Any]] = []
        self.refusal = ""
        """What OpenAI's models say in place of an answer that they refuse."""

    def collect_thought_text(self, chunk: AIMessageChunk) -> str:
        """Return the text of thoughts that a piece adds, and keep what must go back."""
        delta: dict[str, Any] = chunk.response_metadata.pop(_DELTA, {})
        refused = [str(block.get("refusal") or "") for block in _content_blocks(chunk)]
        self.refusal += f"{delta.get('refusal', '')}{''.join(refused)}"
        for entry in cast("list[Any]", delta.get("reasoning_details") or ()):
            if isinstance(entry, dict):
                self._merge_reasoning_detail(cast("dict[str, Any]", entry))
        for field in _TEXTS:
            if isinstance(text := delta.get(field), str) and text:
                self._field = field
                self._text.append(text)
                return text
        found = "".join(b.get("reasoning", "") for b in chunk.content_blocks if b["type"] == "reasoning")
        return found or _raw_reasoning_text(chunk)

    def _merge_reasoning_detail(self, entry: dict[str, Any]) -> None:
        last = self._details[-1] if self._details else None
        same = last and (last.get("type"), last.get("index")) == (entry.get("type"), entry.get("index"))
        if last is None or not same or "index" not in entry:
            self._details.append(dict(entry))
            return
        for key, value in entry.items():
            joins = key in _JOINED and isinstance(value, str)
            last[key] = f"{last.get(key) or ''}{value}" if joins else (value or last.get(key))

    def build_opaque(self, whole: AIMessageChunk) -> Opaque | None:
        """Return what the provider wants back of the whole answer; None: nothing."""
        found = _content_blocks(whole)
        blocks = tuple(
            _drop_chunk_indexes(block)
            for block in found
            if block.get("type") in _BLOCKS and _is_signed_block(block)
        )
        fields: dict[str, Any] = {}
        if self._details:
            fields["reasoning_details"] = self._details
        elif self._field == "reasoning_content" and whole.tool_call_chunks:
            fields[self._field] = "".join(self._text)
        if phase := next((block["phase"] for block in reversed(found) if block.get("phase")), None):
            fields[_PHASE] = phase
        if not blocks and not fields:
            return None
        kept: Any = clean_json(_encode_bytes(blocks))
        return Opaque(model=self._model, blocks=tuple(kept), fields=cast(Any, clean_json(fields)))


_BASE64 = "interlock_base64"
"""Key of an object that stands for bytes: Bedrock's client gives redacted thinking so."""


def _raw_reasoning_text(chunk: AIMessageChunk) -> str:
    """Return the thoughts that open models tell in Responses, not in a summary: LangChain's blocks lack them."""
    reasoning = (block for block in _content_blocks(chunk) if block.get("type") == "reasoning")
    parts = [cast("dict[str, Any]", part) for block in reasoning for part in block.get("content") or ()]
    return "".join(str(part.get("text", "")) for part in parts if part.get("type") == "reasoning_text")


def _content_blocks(chunk: AIMessageChunk) -> list[dict[str, Any]]:
    content = cast("list[Any]", chunk.content) if isinstance(chunk.content, list) else []
    return [cast("dict[str, Any]", block) for block in content if isinstance(block, dict)]


def _encode_bytes(value: Any) -> Any:
    if isinstance(value, bytes):
        return {_BASE64: base64.b64encode(value).decode()}
    if isinstance(value, dict):
        return {key: _encode_bytes(one) for key, one in cast("dict[str, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_encode_bytes(one) for one in cast("list[Any]", value)]
    return value


def _decode_bytes(value: Any) -> Any:
    if isinstance(value, dict):
        found = cast("dict[str, Any]", value)
        if _BASE64 in found:
            return base64.b64decode(found[_BASE64])
        return {key: _decode_bytes(one) for key, one in found.items()}
    return [_decode_bytes(one) for one in cast("list[Any]", value)] if isinstance(value, list) else value


def _is_signed_block(block: Mapping[str, Any]) -> bool:
    """Return whether a block is more than text: providers refuse thinking without its signature."""
    inner = block.get("reasoning_content")
    nested = cast("dict[str, Any]", inner) if isinstance(inner, dict) else {}
    names = ("signature", "data", "encrypted_content", "redacted_content", "redactedContent", "id")
    return any(block.get(name) or nested.get(name) for name in names)


def _drop_chunk_indexes(block: Mapping[str, Any]) -> dict[str, Any]:
    """Return the block without what LangChain added to join its pieces."""
    kept = {key: value for key, value in block.items() if key != "index"}
    for name in ("summary", "content"):
        if isinstance(listed := kept.get(name), list):
            parts = [
                cast("dict[str, Any]", one) for one in cast("list[Any]", listed) if isinstance(one, dict)
            ]
            kept[name] = [{key: value for key, value in one.items() if key != "index"} for one in parts]
    return kept


def prepend_thinking(message: AIMessage, opaque: Opaque) -> AIMessage:
    """Return the message with the thinking that belongs to it, in front of its text."""
    content: Any = message.content
    fields = {name: value for name, value in opaque.fields.items() if name != _PHASE}
    if (opaque.blocks or _PHASE in opaque.fields) and isinstance(content, str):
        phase = {_PHASE: opaque.fields[_PHASE]} if _PHASE in opaque.fields else {}
        content = [{"type": "text", "text": content, **phase}] if content else []
    if opaque.blocks:
        content = [*(_decode_bytes(block) for block in opaque.blocks), *content]
    more = {_FIELDS: fields} if fields else {}
    return AIMessage(content, tool_calls=message.tool_calls, additional_kwargs=more)


def is_openai_client_class(cls: type[Any]) -> bool:
    """Return whether a client class is built on that of OpenAI's protocol."""
    return any(one.__name__ == "BaseChatOpenAI" for one in cls.__mro__)


@cache
def subclass_to_read_and_resend_thoughts(cls: type[Any]) -> type[Any]:
    """Return the class of OpenAI's protocol with the thoughts that its client drops, and with those that go back."""

    class Reading(cls):
        def _get_request_payload(self, input_: Any, **options: Any) -> dict[str, Any]:
            own: Any = super()
            payload: dict[str, Any] = own._get_request_payload(input_, **options)
            sent = payload.get("messages")
            wants_all = is_thinking_deepseek_model(str(payload.get("model", "")))
            if isinstance(sent, list) and isinstance(input_, list):
                for message, made in zip(cast("list[Any]", input_), cast("list[Any]", sent), strict=False):
                    if wants_all and made["role"] == "assistant":
                        made[_TEXTS[0]] = ""  # it refuses answers without, also those of another model
                    if fields := getattr(message, "additional_kwargs", {}).get(_FIELDS):
                        made.update(fields)
            if isinstance(items := payload.get("input"), list):
                payload["input"] = normalize_responses_input(cast("list[Any]", items))
            if "input" in payload and _REASONING.search(str(payload.get("model", ""))):
                payload["include"] = [*(payload.get("include") or ()), "reasoning.encrypted_content"]
            return payload

        def _convert_chunk_to_generation_chunk(self, chunk: dict[str, Any], *rest: Any) -> Any:
            delta = _first_delta(chunk)
            for call in cast("list[Any]", delta.get("tool_calls") or ()):
                function: Any = call.get("function") if isinstance(call, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
                if isinstance(function, dict) and isinstance(function.get("arguments"), dict | list):  # pyright: ignore[reportUnknownMemberType]
                    function["arguments"] = json.dumps(function["arguments"])
            if chunk.get("usage"):
                chunk = {**chunk, "usage": _normalize_cached_tokens(chunk["usage"])}
            own: Any = super()
            made: Any = own._convert_chunk_to_generation_chunk(chunk, *rest)
            told = {name: delta[name] for name in _TOLD if delta.get(name)}
            if made is not None and told:
                made.message.additional_kwargs.pop(
                    "reasoning_content", None
                )  # `collect_thought_text` reads it once
                made.message.response_metadata[_DELTA] = told
            return made

    return Reading


def _normalize_cached_tokens(usage: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the usage with what came from a cache where OpenAI tells it; Together and Moonshot do elsewhere."""
    cached = usage.get("cached_tokens") or usage.get("prompt_cache_hit_tokens")
    details: dict[str, Any] = {"cached_tokens": cached, **(usage.get("prompt_tokens_details") or {})}
    return {**usage, "prompt_tokens_details": details} if cached else usage


def _first_delta(chunk: Mapping[str, Any]) -> dict[str, Any]:
    choices: Any = (
        chunk.get("choices") or cast("dict[str, Any]", chunk.get("chunk") or {}).get("choices") or ()
    )
    first: Any = choices[0] if choices else {}
    return cast("dict[str, Any]", first.get("delta") or {}) if isinstance(first, dict) else {}  # pyright: ignore[reportUnknownMemberType]


class ThinkTagParser:
    """Takes `<think>…</think>` at the beginning of an answer's text for thoughts: so do models of small servers."""

    _OPEN, _CLOSE = "<think>", "</think>"

    def __init__(self) -> None:
        self._held: str = ""
        self._state: Literal["before", "inside", "gap", "after"] = "before"
        self._thoughts: list[str] = []

    def split_thoughts(self, text: str) -> tuple[str, str]:
        """Return the text and the thoughts that a piece adds; what may still become a tag is held back."""
        if self._state == "gap" and (text := text.lstrip("\n")):
            self._state = "after"
        if self._state in ("gap", "after"):
            return text, ""
        self._held += text
        if self._state == "before":
            begun = self._held.lstrip()
            if not begun or (len(begun) < len(self._OPEN) and self._OPEN.startswith(begun)):
                return "", ""
            if not begun.startswith(self._OPEN):
                return self._take_held_text(), ""
            self._state, self._held = "inside", begun[len(self._OPEN) :]
        thought, found, rest = self._held.partition(self._CLOSE)
        if found:
            self._held, self._state = "", "gap"  # the line breaks between them belong to neither
            return self.split_thoughts(rest)[0], thought
        kept = next((n for n in range(len(self._CLOSE) - 1, 0, -1) if thought.endswith(self._CLOSE[:n])), 0)
        self._held = thought[len(thought) - kept :]
        self._thoughts.append(thought[: len(thought) - kept])
        return "", self._thoughts[-1]

    def flush(self) -> tuple[str, str]:
        """Return what is still held back when the answer ends; thoughts that never ended are its text, too."""
        inside = self._state == "inside"
        held = self._take_held_text()
        return (f"{''.join(self._thoughts)}{held}", held) if inside else (held, "")

    def _take_held_text(self) -> str:
        held, self._held, self._state = self._held, "", "after"
        return held
