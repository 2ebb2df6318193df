"""opaque: signed thoughts and reasoning items: kept from an answer, handed back to the model that made them."""

from collections.abc import Mapping
from functools import cache
from typing import Any, cast

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage

from interlock.state.messages import Message, Opaque
from interlock.state.text import clean_json

_BLOCKS = ("thinking", "redacted_thinking", "reasoning_content", "reasoning")
"""Types of content: Anthropic's two, Bedrock's, that of OpenAI's Responses."""
_DETAILS, _THOUGHT, _ITEM = "reasoning_details", "reasoning_content", "output_message"
"""OpenRouter's signed thoughts; DeepSeek's thoughts; the id of an output message of OpenAI's Responses."""
_SAID = ("reasoning_content", "reasoning")
"""How servers that speak OpenAI's protocol call a thought."""
_ENDS = ("finish_reason", "stop_reason", "done_reason", "stopReason")


def finish_of(meta: Mapping[str, Any]) -> str:
    """Return what a chunk's metadata call the end of the answer; empty: nothing."""
    if found := next((meta[name] for name in _ENDS if meta.get(name)), None):
        return str(found)
    status = str(meta.get("status") or "")
    if status == "incomplete":
        return str((meta.get("incomplete_details") or {}).get("reason") or status)
    return status if status == "completed" else ""


def opaque_of(model: str, whole: AIMessageChunk) -> Opaque | None:
    """Return what has to be handed back to `model` with the answer; None: nothing."""
    content = whole.content if isinstance(whole.content, list) else []
    typed = [block for block in content if isinstance(block, dict)]
    blocks = [{k: v for k, v in b.items() if k != "index"} for b in typed if b.get("type") in _BLOCKS]
    more = whole.additional_kwargs
    fields = {name: more[name] for name in (_DETAILS,) if more.get(name)}
    if whole.tool_call_chunks and more.get(_THOUGHT):
        fields[_THOUGHT] = more[_THOUGHT]
    if ids := [b["id"] for b in typed if b.get("type") == "text" and str(b.get("id", "")).startswith("msg")]:
        fields[_ITEM] = ids[0]
    if not blocks and not fields:
        return None
    made = cast("dict[str, Any]", clean_json({"blocks": blocks, "fields": fields}))
    return Opaque(model=model, blocks=tuple(made["blocks"]), fields=made["fields"])


def with_opaque(made: BaseMessage, message: Message, model: str) -> BaseMessage:
    """Return the message with its opaque parts, if `model` made them."""
    own = message.opaque
    if own is None or own.model != model or not isinstance(made, AIMessage):
        return made
    fields = dict(own.fields)
    item = fields.pop(_ITEM, None)
    content: list[Any] = [{**block} for block in own.blocks]
    if made.content and (content or item):
        said: list[Any] = [made.content] if isinstance(made.content, str) else made.content
        texts = [{"type": "text", "text": part} if isinstance(part, str) else part for part in said]
        content += [{**part, "id": item} for part in texts] if item else texts
    return made.model_copy(
        update={
            "content": content or made.content,
            "additional_kwargs": {**made.additional_kwargs, **fields},
        }
    )


@cache
def handing_back(cls: type[BaseChatModel]) -> type[BaseChatModel]:
    """Return the class with the thoughts of OpenAI's protocol read and sent: the client knows none in it."""
    if not hasattr(cls, "_get_request_payload") or not hasattr(cls, "_convert_chunk_to_generation_chunk"):
        return cls

    class HandingBack(cls):
        def _get_request_payload(self, input_: Any, **options: Any) -> dict[str, Any]:
            own = cast(Any, super())
            payload: dict[str, Any] = own._get_request_payload(input_, **options)
            sent: Any = payload.get("messages") or (payload.get("extra_body") or {}).get("messages")
            if not sent:
                return payload
            asked = cast(Any, self)._convert_input(input_).to_messages()
            for message, body in zip(asked, sent, strict=False):
                fields = message.additional_kwargs if isinstance(message, AIMessage) else {}
                body.update({name: fields[name] for name in (_DETAILS, _THOUGHT) if fields.get(name)})
            return payload

        def _convert_chunk_to_generation_chunk(self, chunk: dict[str, Any], *rest: Any) -> Any:
            made = cast(Any, super())._convert_chunk_to_generation_chunk(chunk, *rest)
            choices = chunk.get("choices") or []
            delta: dict[str, Any] = (choices[0].get("delta") or {}) if made is not None and choices else {}
            more = made.message.additional_kwargs if delta else {}
            thought = next((delta[name] for name in _SAID if isinstance(delta.get(name), str)), "")
            if thought and not more.get(_THOUGHT):
                more[_THOUGHT] = thought
            if delta.get(_DETAILS):
                more[_DETAILS] = delta[_DETAILS]
            return made

    HandingBack.__name__ = cls.__name__
    return HandingBack
