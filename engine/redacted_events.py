"""redacted_events: the last door of a run's events; whatever they hold, no renderer gets a known secret."""

import threading
from collections.abc import Iterator
from typing import Any

from interlock.services.redacting_stream import RedactingStream
from interlock.services.redaction import Redactor
from interlock.state.events import (
    Event,
    MessageEvent,
    NodeEnd,
    NodeStart,
    Result,
    Thought,
    ToolOutput,
    ToolResultEvent,
)

_Stream = tuple[str, str, str]
"""The agent that speaks, the event's type, the call."""


class RedactedEvents:
    """Pieces of a text go on as far as they can't be the beginning of a secret; the rest before what ends them."""

    def __init__(self, redact: Redactor) -> None:
        self._redact = redact
        self._streams: dict[_Stream, tuple[RedactingStream, Event]] = {}
        self._lock = threading.Lock()

    def __call__(self, event: Event) -> list[Event]:
        """What to show for an event, in order. From any thread."""
        if not self._redact.enabled or isinstance(event, NodeStart | NodeEnd):
            return [event]
        with self._lock:
            own = _stream_of(event)
            shown = [*self._ended_by(event, own)]
            if own is not None:
                piece = self._fed(own, event)
                return [*shown, piece] if piece else shown
            return [*shown, self._whole(event)]

    def _fed(self, own: _Stream, event: Event) -> Event | None:
        stream, _ = self._streams.get(own) or (RedactingStream(self._redact), event)
        self._streams[own] = (stream, event)
        text = _text(event)
        ready = stream.feed(text)
        if ready == text:
            return event
        return _with(event, ready) if ready else None

    def _ended_by(self, event: Event, own: _Stream | None) -> Iterator[Event]:
        """What still waits of the streams that an event brings to their end."""
        if own is not None and own[1] == "tool_output":
            return
        for key in [key for key in self._streams if key != own and _ends(event, key)]:
            stream, last = self._streams.pop(key)
            if rest := stream.end():
                yield _with(last, rest)

    def _whole(self, event: Event) -> Event:
        fields = {name: value for name, value in event.__dict__.items() if name != "type"}
        if isinstance(event, Result):
            del fields["output"]  # made of what is redacted already, or handed back word for word
        changed = {name: new for name, old in fields.items() if (new := self._redact.json(old)) != old}
        return event.model_copy(update=changed) if changed else event


def _stream_of(event: Event) -> _Stream | None:
    """None: it comes whole."""
    if isinstance(event, ToolOutput):
        return event.agent, event.type, event.tool_id
    if isinstance(event, Thought) or (isinstance(event, MessageEvent) and event.delta):
        return event.agent, event.type, ""
    return None


def _ends(event: Event, stream: _Stream) -> bool:
    """A call's output ends with its result; an agent's words with whatever else it tells."""
    agent, kind, call = stream
    if isinstance(event, Result):
        return True
    if kind == "tool_output":
        return isinstance(event, ToolResultEvent) and (event.agent, event.tool_id) == (agent, call)
    return event.agent == agent


def _text(event: Event) -> str:
    return event.text if isinstance(event, ToolOutput) else str(getattr(event, "content", ""))


def _with(event: Event, text: str) -> Event:
    changes: dict[str, Any] = {"text" if isinstance(event, ToolOutput) else "content": text}
    return event.model_copy(update=changes)
