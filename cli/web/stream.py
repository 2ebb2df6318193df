"""stream: a run's events for a browser, as server-sent events: its record with places, live pieces between them."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from interlock.cli.web.drives import pieces
from interlock.engine.client import Client
from interlock.engine.client.following import Standing

_QUEUED = 64
"""Events between the run's record and a slow reader; more wait in the store."""
_BEAT_S = 10.0
_LIVE = ("message", "thought", "tool_output", "node_start", "progress", "custom", "error", "retry", "result")


def sent(data: object, id: str = "", event: str = "") -> bytes:
    """One server-sent event."""
    head = (f"event: {event}\n" if event else "") + (f"id: {id}\n" if id else "")
    return f"{head}data: {json.dumps(data)}\n\n".encode()


async def events(client: Client, run: str, cursor: str) -> AsyncGenerator[bytes]:
    """Both kinds of events until the reader is gone; `: beat` shows a silent connection that it lives."""
    queue = asyncio.Queue[bytes](_QUEUED)
    readers = [
        asyncio.ensure_future(_record(client, run, cursor, queue)),
        asyncio.ensure_future(_pieces(client, run, queue)),
    ]
    try:
        yield b"retry: 500\n\n"
        while not any(reader.done() for reader in readers):
            try:
                yield await asyncio.wait_for(queue.get(), _BEAT_S)
            except TimeoutError:
                yield b": beat\n\n"
    finally:
        for reader in readers:
            reader.cancel()


async def _record(client: Client, run: str, cursor: str, queue: "asyncio.Queue[bytes]") -> None:
    async with aclosing(client.follow(run, cursor)) as found:
        async for event, place in found:
            data: dict[str, Any]
            if isinstance(event, Standing):
                data = {"type": "standing", **event._asdict()}
            elif place:
                data = event.model_dump(mode="json")
            else:
                continue
            await queue.put(sent(data, place))


async def _pieces(client: Client, run: str, queue: "asyncio.Queue[bytes]") -> None:
    async with aclosing(pieces(client.home, run)) as found:
        async for event in found:
            if event["type"] in _LIVE:
                await queue.put(sent({**event, "live": True}))
