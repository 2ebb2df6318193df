"""chat_messages: LangChain's messages and tools as ours, and a reply of ours as LangChain's."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)

from interlock.state.errors import UserError
from interlock.state.messages import DataPart, Message, Part, Reply, TextPart, ToolCall, ToolDeclaration
from interlock.state.text import clean, clean_json

_OWN = "interlock"
"""Key of `additional_kwargs` with what LangChain has no field for: the provider's signatures."""


def to_ours(message: BaseMessage) -> Message:
    """The message as the models service reads it. Raises `UserError` for content that it can't send."""
    if isinstance(message, SystemMessage):
        return Message(role="system", content=clean(str(message.text)))
    if isinstance(message, HumanMessage):
        return Message(role="user", content=_content(message))
    if isinstance(message, ToolMessage):
        status = "error" if message.status == "error" else "success"
        return Message(
            role="tool",
            content=clean(str(message.text)),
            tool_call_id=message.tool_call_id,
            name=message.name,
            status=status,
        )
    if isinstance(message, AIMessage):
        return _answer(message)
    raise UserError(
        f"model() can't send a {type(message).__name__}; expected system, human, AI or tool messages."
    )


def _answer(message: AIMessage) -> Message:
    own: Mapping[str, Any] = message.additional_kwargs.get(_OWN) or {}
    signatures: Mapping[str, str] = own.get("calls") or {}
    calls = tuple(
        ToolCall(
            id=call["id"] or "",
            name=call["name"],
            args=cast(dict[str, Any], clean_json(call["args"])),
            signature=signatures.get(call["id"] or ""),
        )
        for call in message.tool_calls
    )
    return Message(
        role="assistant", content=clean(str(message.text)), tool_calls=calls, signature=own.get("signature")
    )


def _content(message: BaseMessage) -> str | tuple[Part, ...]:
    if isinstance(message.content, str):
        return clean(message.content)
    return tuple(_part(cast("Mapping[str, Any]", block)) for block in message.content_blocks)


def _part(block: Mapping[str, Any]) -> Part:
    kind = block["type"]
    if kind in ("text", "text-plain"):
        return TextPart(text=clean(str(block.get("text") or "")))
    if kind in ("image", "file", "audio", "video") and block.get("base64"):
        mime = str(block.get("mime_type") or "application/octet-stream")
        return DataPart(
            type="image" if kind == "image" else "file", mime_type=mime, data=str(block["base64"])
        )
    raise UserError(f"model() can't send a block of type {kind!r}; expected text, or a file as base64.")


def declared(tools: Sequence[Mapping[str, Any]]) -> list[ToolDeclaration]:
    """Tools in OpenAI's format, as `bind_tools` keeps them."""
    functions = [tool["function"] for tool in tools]
    return [
        ToolDeclaration(
            name=function["name"],
            description=function.get("description") or "",
            parameters=function.get("parameters") or {"type": "object", "properties": {}},
        )
        for function in functions
    ]


def to_chunk(reply: Reply, *, streamed: bool) -> AIMessageChunk:
    """The reply as the last piece of a stream; `streamed`: its text was sent in pieces before."""
    message, usage = reply.message, reply.usage
    signatures = {call.id: call.signature for call in message.tool_calls if call.signature}
    own = {"signature": message.signature, "calls": signatures}
    more: dict[str, Any] = {_OWN: own} if message.signature or signatures else {}
    if message.thought and not streamed:
        more["reasoning_content"] = message.thought
    return AIMessageChunk(
        content="" if streamed else message.text,
        id=f"run-{reply.record[:32]}",
        additional_kwargs=more,
        tool_calls=[
            {"type": "tool_call", "id": call.id, "name": call.name, "args": call.args}
            for call in message.tool_calls
        ],
        usage_metadata={
            "input_tokens": usage.input,
            "output_tokens": usage.output,
            "total_tokens": usage.total,
            "input_token_details": {"cache_read": usage.cached},
            "output_token_details": {"reasoning": usage.thoughts},
        },
        response_metadata={"model_name": reply.model, "finish_reason": reply.finish_reason},
    )


def joined(chunks: Sequence[AIMessageChunk]) -> AIMessage:
    whole = chunks[0] + [*chunks[1:]] if len(chunks) > 1 else chunks[0]
    fields = {"content", "additional_kwargs", "response_metadata", "id", "tool_calls", "usage_metadata"}
    return AIMessage(**{name: getattr(whole, name) for name in fields})
