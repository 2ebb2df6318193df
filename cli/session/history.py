"""history: a run's conversation as events made again from its record."""

from collections.abc import Iterator
from pathlib import Path

from interlock.engine.read.snapshot import messages_at, state_at
from interlock.state.errors import UserError
from interlock.state.events import Event, MessageEvent, ToolResultEvent, ToolUse
from interlock.state.messages import Message


def events(home: Path, run: str) -> list[Event]:
    """What was said and done so far, as a renderer was told it."""
    try:
        head = str(state_at(home, run).get("head") or "")
    except UserError:  # killed before its first checkpoint
        return []
    return [event for message in messages_at(home, run, head) for event in _events(message)]


def _events(message: Message) -> Iterator[Event]:
    if message.role == "user" and message.origin in (None, "person"):
        yield MessageEvent(role="user", content=message.text)
    elif message.role == "assistant":
        if message.text:
            yield MessageEvent(role="assistant", content=message.text)
        for call in message.tool_calls:
            yield ToolUse(tool_name=call.name, tool_id=call.id, parameters=call.args)
    elif message.role == "tool":
        yield ToolResultEvent(
            tool_name=message.name or "",
            tool_id=message.tool_call_id or "",
            status=message.status or "success",
            output=message.text,
        )
