"""page_events: server-sent events for a browser: a run's record, live pieces between, and what changed."""

import asyncio
import json
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from starlette.requests import Request

from interlock.engine.client import Client
from interlock.engine.client.following import RunStatus, poll_store_for_changes
from interlock.engine.client.record import Cursor
from interlock.web.api.drive_streams import EventStreamResponse
from interlock.web.drive_process import tail_live_events
from interlock.web.endpoints import run_from_path
from interlock.web.page_views import PageContext

_QUEUED = 16
"""Events between the run's record and a slow reader; more wait in the store. With `_MOST` they hold less than 1 MB."""
_AT_ONCE = 40_000
"""Bytes after which events are sent: a long run has thousands of small ones."""
_MAX_TEXT = 40_000
"""Characters of one event's text; the whole is fetched apart."""
_BEAT_S = 10.0
_CALM_S = 1.0
"""Seconds between two events that say that some run changed."""
_STUCK_S = 10.0
"""Seconds for which a reader may take nothing; it goes on from its last place later."""
_LIVE = ("message", "thought", "tool_output", "node_start", "progress", "custom", "error", "retry", "result")


def format_sse_event(data: object, id: str = "") -> bytes:
    head = f"id: {id}\n" if id else ""
    return f"{head}data: {json.dumps(data, default=repr)}\n\n".encode()


async def stream_run_events(page: PageContext, request: Request) -> Any:
    row = run_from_path(page.client, request)
    cursor = request.headers.get("last-event-id") or request.query_params.get("cursor", "")
    Cursor.parse(cursor)  # refused here: a stream that has begun can't tell its reader
    return EventStreamResponse(
        _stream_stored_and_live_events(page.client, row.run, cursor), patience_s=_STUCK_S
    )


async def stream_changes(page: PageContext, _: Request) -> Any:
    return EventStreamResponse(_stream_store_changes(page.client), patience_s=_STUCK_S)


async def _stream_stored_and_live_events(client: Client, run: str, cursor: str) -> AsyncGenerator[bytes]:
    """A run's record and its live pieces; `: beat` shows a silent connection that it lives."""
    queue = asyncio.Queue[bytes](_QUEUED)
    readers = [
        asyncio.ensure_future(_enqueue_stored_events(client, run, cursor, queue)),
        asyncio.ensure_future(_enqueue_live_events(client, run, queue)),
    ]
    try:
        yield b"retry: 500\n\n"
        while not any(reader.done() for reader in readers) or not queue.empty():
            try:
                async with asyncio.timeout(
                    _BEAT_S
                ):  # `wait_for` forgets a cancellation that comes with a piece
                    data = await queue.get()
            except TimeoutError:
                data = b": beat\n\n"
            while len(data) < _AT_ONCE and not queue.empty():
                data += queue.get_nowait()
            yield data
    finally:
        for reader in readers:
            reader.cancel()


async def _stream_store_changes(client: Client) -> AsyncGenerator[bytes]:
    """Says at once which requests wait, when that changes, and now and then that some run changed."""
    waiting: tuple[str, ...] | None = None
    told = beat = 0.0
    due = False
    yield b"retry: 500\n\n"
    async with aclosing(poll_store_for_changes(client.home)) as looks:
        async for is_changed in looks:
            now = time.monotonic()
            if is_changed:
                due = True
                found = tuple([one.id for one in await asyncio.to_thread(client.waiting_requests)])
                if found != waiting:
                    waiting, told = found, 0.0
            if due and now - told >= _CALM_S:
                due, told, beat = False, now, now
                yield format_sse_event({"waiting": waiting})
            elif now - beat >= _BEAT_S:
                beat = now
                yield b": beat\n\n"


async def _enqueue_stored_events(
    client: Client, run: str, cursor: str, queue: "asyncio.Queue[bytes]"
) -> None:
    async with aclosing(client.follow_events(run, cursor)) as found:
        async for event, place in found:
            data: dict[str, Any]
            if isinstance(event, RunStatus):
                data = {"type": "standing", **event._asdict()}
            elif place:
                data = event.model_dump(mode="json")
            else:
                continue
            await queue.put(format_sse_event(cut_long_event_texts(data), place))


async def _enqueue_live_events(client: Client, run: str, queue: "asyncio.Queue[bytes]") -> None:
    async with aclosing(tail_live_events(client.home, run)) as found:
        async for event in found:
            if event["type"] in _LIVE:
                await queue.put(format_sse_event({**cut_long_event_texts(event), "live": True}))


def cut_long_event_texts(event: dict[str, Any]) -> dict[str, Any]:
    """Return an event whose long texts are cut; `cut` says how long the longest was."""
    long = {key: len(text) for key, text in event.items() if isinstance(text, str) and len(text) > _MAX_TEXT}
    for key in [key for key, value in event.items() if isinstance(value, dict | list)]:
        text = json.dumps(event[key], default=repr)
        if len(text) > _MAX_TEXT:
            event, long = {**event, key: text}, {**long, key: len(text)}
    if not long:
        return event
    return {**event, **{key: event[key][:_MAX_TEXT] for key in long}, "cut": max(long.values())}
