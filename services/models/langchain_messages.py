"""langchain_messages: our records as LangChain's messages."""

import base64
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from interlock.state.messages import DataPart, Message, TextPart


def converted(message: Message) -> BaseMessage:
    """One message; thoughts and Gemini's signatures stay behind."""
    content: Any = (
        message.content if isinstance(message.content, str) else [_block(p) for p in message.content]
    )
    if message.role == "system":
        return SystemMessage(content)
    if message.role == "user":
        return HumanMessage(content)
    if message.role == "tool":
        status = "success" if message.status in (None, "success") else "error"
        return ToolMessage(content, tool_call_id=message.tool_call_id or "", name=message.name, status=status)
    calls = [{"type": "tool_call", "id": c.id, "name": c.name, "args": c.args} for c in message.tool_calls]
    return AIMessage(content, tool_calls=calls)


def _block(part: TextPart | DataPart) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    data = (
        part.data if part.data is not None else base64.b64encode(Path(part.path or "").read_bytes()).decode()
    )
    return {"type": part.type, "base64": data, "mime_type": part.mime_type}
