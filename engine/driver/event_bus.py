"""event_bus: hands events to renderers, each on a thread and a queue of its own; none can stop or slow the run."""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from interlock.engine.options import Renderer
from interlock.services.secrets.redaction import SHAPES, RedactingStream, Redactor
from interlock.state.events import (
    ErrorEvent,
    Event,
    MessageEvent,
    NodeEnd,
    NodeStart,
    Progress,
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


LIMIT = 8_000_000
"""Characters that wait for a renderer at most, about as many bytes of memory."""
_EVENT_COST = 500
"""What an event weighs besides its texts, so that empty ones are bounded too."""

_TOGETHER_S = 0.016
"""What comes within it is shown in one go: a thread that wakes and writes for each event takes a seventh of a turn."""


class EventBus:
    """The one place that events go to (`Emit`)."""

    def __init__(self, renderers: Sequence[Renderer], limit: int = LIMIT, redact: Redactor = SHAPES) -> None:
        self._redacted = RedactedEvents(redact)
        self._outlets = [_Outlet(renderer, limit, self._detached) for renderer in renderers]
        self.failures: list[str] = []
        """One line for each renderer that was detached; its reader closing the pipe is no failure."""

    def __call__(self, event: Event, /) -> None:
        """Queue for every renderer; never blocks, never fails. From any thread."""
        for shown in self._redacted(event) if self._outlets else ():
            for outlet in self._outlets:
                outlet.put(shown)

    emit = __call__

    async def close(self, timeout_s: float = 5.0) -> bool:
        """Let renderers finish what waits, however slow, unless none of them gets on for `timeout_s`.

        False: one still blocks, and the process must end by `os._exit`: Python's own exit flushes stdout and
        would wait for ever for the lock that the blocked thread holds on it.
        """
        for outlet in self._outlets:
            outlet.close()
        shown, since, pause = -1, 0.0, 0.001
        while any(outlet.is_alive() for outlet in self._outlets):
            if (now_shown := sum(outlet.shown for outlet in self._outlets)) != shown:
                shown, since = now_shown, time.monotonic()
            elif time.monotonic() - since > timeout_s:
                return False
            await asyncio.sleep(pause)
            pause = min(pause * 2, 0.05)
        return True

    def _detached(self, renderer: Renderer, error: Exception) -> None:
        name = getattr(renderer, "__qualname__", type(renderer).__qualname__)
        line = f"Output {name!r} failed and is off from here: {type(error).__name__}: {error}"
        self(ErrorEvent(severity="warning", message=line))
        self.failures.append(line)


class _Outlet(threading.Thread):
    """One renderer with its queue."""

    def __init__(
        self, renderer: Renderer, limit: int, on_failure: Callable[[Renderer, Exception], None]
    ) -> None:
        super().__init__(name="renderer", daemon=True)
        self._renderer, self._limit, self._on_failure = renderer, limit, on_failure
        self._flush: Callable[[], None] | None = getattr(renderer, "flush", None)
        self._queue: deque[tuple[Event, int]] = deque()
        self._weight = 0
        self._left_out = 0
        self.shown = 0
        """Events that the renderer has taken."""
        self._closed = self._over = False
        self._changed = threading.Condition()

    def put(self, event: Event) -> None:
        weight = _weight(event)
        with self._changed:
            if self._closed or self._over:
                return
            self._over = isinstance(event, Result)  # nothing comes after it, no late warning either
            if self._weight + weight > self._limit:
                if _is_droppable(event):
                    self._left_out += 1
                    return
                self._make_room(weight)
            if not self._queue:
                self._changed.notify()
            self._queue.append((event, weight))
            self._weight += weight
            if self.ident is None:
                self.start()  # a bus that nothing was sent to leaves no thread behind

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()

    def run(self) -> None:
        while (event := self._next()) is not None:
            try:
                self._renderer(event)
                self.shown += 1
                if self._flush and not self._queue:
                    self._flush()
            except Exception as error:
                with self._changed:
                    self._closed = True
                    self._queue.clear()
                if not isinstance(error, BrokenPipeError):  # `| head` has seen enough
                    self._on_failure(self._renderer, error)
                return

    def _next(self) -> Event | None:
        with self._changed:
            while not self._queue:
                if self._closed:
                    return None
                self._changed.wait()
                self._changed.wait_for(lambda: self._closed, _TOGETHER_S)
            if self._left_out and isinstance(self._queue[0][0], Result):
                count, self._left_out = self._left_out, 0
                message = f"This output was slower than the run: {count} events were left out."
                return ErrorEvent(severity="warning", message=message)
            event, weight = self._queue.popleft()
            self._weight -= weight
            return event

    def _make_room(self, weight: int) -> None:
        """Leave out the oldest pieces, then (the output stands still) the oldest of all.

        An eighth more than needed, so that a stuck output doesn't cost a pass for each event.
        """
        excess = self._weight + weight - self._limit + self._limit // 8
        for may_go in (_is_droppable, _is_anything):
            kept: deque[tuple[Event, int]] = deque()
            for event, size in self._queue:
                if excess > 0 and may_go(event):
                    excess -= size
                    self._weight -= size
                    self._left_out += 1
                else:
                    kept.append((event, size))
            self._queue = kept


def _weight(event: Event) -> int:
    return _EVENT_COST + sum(len(value) for value in event.__dict__.values() if isinstance(value, str))


def _is_droppable(event: Event) -> bool:
    """A piece of something that comes whole later, or that only shows progress."""
    if isinstance(event, MessageEvent):
        return event.delta
    return isinstance(event, (Thought, ToolOutput, Progress, NodeStart, NodeEnd))


def _is_anything(_event: Event) -> bool:
    return True
