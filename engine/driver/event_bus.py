"""event_bus: hands events to renderers, each on its own thread and queue; none can stop or slow the run.

Rule: `docs/internals.md#renderers`.
"""

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
    ToolStart,
)

_Stream = tuple[str, str, str]
"""Agent, event type, call id."""


class EventRedactor:
    """Redacts streams: emits text up to where a secret could begin, and the rest before the event that ends them."""

    def __init__(self, redact: Redactor) -> None:
        self._redact = redact
        self._streams: dict[_Stream, tuple[RedactingStream, Event]] = {}
        self._lock = threading.Lock()

    def __call__(self, event: Event) -> list[Event]:
        """Events to show in place of this one, in order. Thread-safe."""
        if not self._redact.enabled or isinstance(event, (NodeStart, NodeEnd)):
            return [event]
        with self._lock:
            own = _stream_key(event)
            shown = [*self._flush_ended_streams(event, own)]
            if own is not None:
                piece = self._feed_stream(own, event)
                return [*shown, piece] if piece else shown
            return [*shown, self._redact_event(event)]

    def _feed_stream(self, key: _Stream, event: Event) -> Event | None:
        stream, _ = self._streams.get(key) or (RedactingStream(self._redact), event)
        self._streams[key] = (stream, event)
        text = _event_text(event)
        ready = stream.feed(text)
        if ready == text:
            return event
        return _replace_text(event, ready) if ready else None

    def _flush_ended_streams(self, event: Event, own_key: _Stream | None) -> Iterator[Event]:
        """The held-back text of every stream that this event ends."""
        if own_key is not None and own_key[1] == "tool_output":
            return
        for key in [key for key in self._streams if key != own_key and _ends_stream(event, key)]:
            stream, last = self._streams.pop(key)
            if rest := stream.flush():
                yield _replace_text(last, rest)

    def _redact_event(self, event: Event) -> Event:
        fields = {name: value for name, value in event.__dict__.items() if name != "type"}
        if isinstance(event, Result):
            del fields["output"]  # made of redacted text already, or returned verbatim
        changed = {name: new for name, old in fields.items() if (new := self._redact.redact_json(old)) != old}
        return event.model_copy(update=changed) if changed else event


def _stream_key(event: Event) -> _Stream | None:
    """None: the event is not part of a stream."""
    if isinstance(event, ToolOutput):
        return event.agent, event.type, event.tool_id
    if isinstance(event, Thought) or (isinstance(event, MessageEvent) and event.delta):
        return event.agent, event.type, ""
    return None


def _ends_stream(event: Event, stream: _Stream) -> bool:
    """A call's output ends with its result; an agent's text, with the agent's next event of another kind."""
    agent, kind, call = stream
    if isinstance(event, Result):
        return True
    if kind == "tool_output":
        return isinstance(event, ToolResultEvent) and (event.agent, event.tool_id) == (agent, call)
    return event.agent == agent


def _event_text(event: Event) -> str:
    return event.text if isinstance(event, ToolOutput) else str(getattr(event, "content", ""))


def _replace_text(event: Event, text: str) -> Event:
    changes: dict[str, Any] = {"text" if isinstance(event, ToolOutput) else "content": text}
    return event.model_copy(update=changes)


QUEUE_LIMIT = 8_000_000
"""Maximum characters queued per renderer; roughly bytes of memory."""
_EVENT_COST = 500
"""An event's cost besides its texts, so that empty ones are bounded too."""

_TOGETHER_S = 0.033
"""Events within this window are shown together: waking and writing per event takes a seventh of a turn."""


class EventBus:
    """Distributes events to all renderers (`Emit`)."""

    def __init__(
        self, renderers: Sequence[Renderer], limit: int = QUEUE_LIMIT, redact: Redactor = SHAPES
    ) -> None:
        self._redacted = EventRedactor(redact)
        self._outlets = [
            _RendererThread(renderer, limit, self._report_failed_renderer) for renderer in renderers
        ]
        self._running: dict[tuple[str, str], ToolStart] = {}
        """Calls under way, by agent and id."""
        self.failures: list[str] = []
        """One line per renderer detached after an error; a reader that closes the pipe is no error."""

    def __call__(self, event: Event, /) -> None:
        """Queue for every renderer; never blocks, never fails. Thread-safe."""
        if isinstance(event, ToolStart):
            self._running[event.agent, event.tool_id] = event
        elif isinstance(event, ToolResultEvent):
            self._running.pop((event.agent, event.tool_id), None)
        for shown in self._redacted(event) if self._outlets else ():
            for outlet in self._outlets:
                outlet.enqueue(shown)

    def report_running_calls_cancelled(self) -> None:
        """Report each call under way as cancelled: the run was stopped."""
        for call in [*self._running.values()]:
            self(
                ToolResultEvent(
                    agent=call.agent,
                    tool_name=call.tool_name,
                    tool_id=call.tool_id,
                    status="cancelled",
                    summary=call.summary,
                )
            )

    async def close(self, timeout_s: float = 5.0) -> bool:
        """Let renderers finish what is queued, however slow, unless none makes progress for `timeout_s`.

        False: one still blocks, and the process must end by `os._exit`: Python's own exit flushes stdout and would wait
        for ever for the lock the blocked thread holds on it.
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

    def _report_failed_renderer(self, renderer: Renderer, error: Exception) -> None:
        name = getattr(renderer, "__qualname__", type(renderer).__qualname__)
        line = f"Output {name!r} failed and is now off: {type(error).__name__}: {error}"
        self(ErrorEvent(severity="warning", message=line))
        self.failures.append(line)


class _RendererThread(threading.Thread):
    """One renderer with its queue."""

    def __init__(
        self, renderer: Renderer, limit: int, on_failure: Callable[[Renderer, Exception], None]
    ) -> None:
        super().__init__(name="renderer", daemon=True)
        self._renderer, self._limit, self._on_failure = renderer, limit, on_failure
        self._flush: Callable[[], None] | None = getattr(renderer, "flush", None)
        self._queue: deque[tuple[Event, int]] = deque()
        self._weight = 0
        self._skipped_count = 0
        self.shown = 0
        """Events the renderer has processed."""
        self._closed = self._over = False
        self._woken = float("-inf")
        self._changed = threading.Condition()

    def enqueue(self, event: Event) -> None:
        weight = _event_weight(event)
        with self._changed:
            if self._closed or self._over:
                return
            self._over = isinstance(event, Result)  # the last event, even before late warnings
            if self._weight + weight > self._limit:
                if _is_droppable(event):
                    self._skipped_count += 1
                    return
                self._drop_oldest(weight)
            if not self._queue:
                self._changed.notify()
            self._queue.append((event, weight))
            self._weight += weight
            if self.ident is None:
                self.start()  # lazily, so an unused bus leaves no thread behind

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()

    def run(self) -> None:
        while (event := self._dequeue()) is not None:
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

    def _dequeue(self) -> Event | None:
        with self._changed:
            while not self._queue:
                if self._closed:
                    return None
                self._changed.wait()
                self._changed.wait_for(lambda: self._closed, self._batching_delay_s())
            if self._skipped_count and isinstance(self._queue[0][0], Result):
                count, self._skipped_count = self._skipped_count, 0
                message = f"This output was slower than the run: {count} events were skipped."
                return ErrorEvent(severity="warning", message=message)
            event, weight = self._queue.popleft()
            self._weight -= weight
            return event

    def _batching_delay_s(self) -> float:
        """Seconds to wait for more: none for a piece of text that follows a silence, which a person waits for."""
        now, woken = time.monotonic(), self._woken
        self._woken = now
        first = self._queue and _stream_key(self._queue[0][0])
        return 0 if first and now - woken >= _TOGETHER_S else _TOGETHER_S

    def _drop_oldest(self, weight: int) -> None:
        """Drop the oldest pieces, then, for an output that is stuck, the oldest events of any kind.

        Drops an eighth more than needed, so that a stuck output doesn't cost a pass per event.
        """
        excess = self._weight + weight - self._limit + self._limit // 8
        for of_any_kind in (False, True):
            kept: deque[tuple[Event, int]] = deque()
            for event, size in self._queue:
                if excess > 0 and (of_any_kind or _is_droppable(event)):
                    excess -= size
                    self._weight -= size
                    self._skipped_count += 1
                else:
                    kept.append((event, size))
            self._queue = kept


def _event_weight(event: Event) -> int:
    weight = _EVENT_COST
    for value in event.__dict__.values():  # a generator takes twice as long, for each of a turn's 40 events
        if isinstance(value, str):
            weight += len(value)
    return weight


def _is_droppable(event: Event) -> bool:
    """A piece of something that arrives whole later, or that only shows progress."""
    if isinstance(event, MessageEvent):
        return event.delta
    return isinstance(event, (Thought, ToolOutput, Progress, NodeStart, NodeEnd))
