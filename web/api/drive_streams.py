"""drive_streams: streams a drive's events to a program, read from the drive's file; nothing waits for a slow reader."""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

from starlette.requests import ClientDisconnect, Request
from starlette.responses import StreamingResponse

from interlock.web.api.drive_recorder import stream_file_path
from interlock.web.api.payloads import dump_json

_LOOK_S, BEAT_S = 0.02, 5.0
_READ_BYTES = 262_144
"""Bytes of a file that are read at once, and so the most that waits for one reader besides what the system holds."""
PATIENCE_S = 30.0
"""A reader that takes nothing for so long is cut; it may come back with the last id that it saw."""


class EventPiece(NamedTuple):
    """A part of one event of a drive's stream, which may be larger than what is held for a reader."""

    number: int
    event: str
    data: bytes
    is_first: bool
    is_last: bool


async def follow_event_pieces(
    home: Path,
    drive_id: str,
    is_unfinished: Callable[[], bool],
    after_number: int = -1,
    only_new: bool = False,
) -> AsyncGenerator[EventPiece | None]:
    """A drive's events after a number, until it has ended; None: nothing for a while. `only_new`: later ones only."""
    path, number, silent = stream_file_path(home, drive_id), -1, 0.0
    event, head = "", b""
    if not path.exists():
        return
    with path.open("rb") as file:
        if (
            only_new and (there := _count_events_and_seek_end(file)) > 1
        ):  # with its first event alone, nothing was missed
            number = after_number = there - 1
        while True:
            lasts = is_unfinished()
            if not (data := file.read(_READ_BYTES)):
                if not lasts:
                    return
                silent += _LOOK_S
                if silent >= BEAT_S:
                    silent = 0.0
                    yield None
                await asyncio.sleep(_LOOK_S)
                continue
            silent = 0.0
            *whole, rest = data.split(b"\n")
            for part, last in (*((one, True) for one in whole), *([(rest, False)] if rest else [])):
                if first := not event:
                    head += part
                    if not (last or b"\t" in head):
                        continue
                    name, _, part = head.partition(b"\t")
                    event, head, number = name.decode(), b"", number + 1
                if event == "end":
                    return
                if number > after_number:
                    yield EventPiece(number, event, part, first, last)
                event = "" if last else event


def _count_events_and_seek_end(file: BinaryIO) -> int:
    """Return how many events a file has; leaves it after the last whole one, or at its start if there is only one."""
    found = place = end = 0
    while data := file.read(_READ_BYTES):
        if (last := data.rfind(b"\n")) >= 0:
            found, end = found + data.count(b"\n"), place + last + 1
        place += len(data)
    file.seek(end if found > 1 else 0)
    return found


async def join_event_pieces(pieces: AsyncIterator[EventPiece | None]) -> AsyncGenerator[EventPiece | None]:
    """Events as a whole, each in one piece."""
    held: list[bytes] = []
    async for piece in pieces:
        if piece is None:
            yield None
            continue
        held.append(piece.data)
        if piece.is_last:
            yield piece._replace(data=b"".join(held), is_first=True)
            held = []


def format_sse(event: str, data: bytes, id: str = "") -> bytes:
    return f"event: {event}\r\ndata: ".encode() + data + _format_sse_event_trailer(id)


def _format_sse_event_trailer(id: str) -> bytes:
    return (f"\r\nid: {id}" if id else "").encode() + b"\r\n\r\n"


async def encode_sse(
    pieces: AsyncIterator[EventPiece | None],
    modes: frozenset[str],
    with_ids: bool,
    without_errors: bool = False,
) -> AsyncIterator[bytes]:
    """The events of some modes, as server-sent events; and errors, which end a stream."""
    always = () if without_errors else ("error",)
    async for piece in pieces:
        if piece is None:
            yield b": heartbeat\r\n\r\n"
        elif not modes or piece.event in always or re.split(r"[|/]", piece.event)[0] in modes:
            before = f"event: {piece.event}\r\ndata: ".encode() if piece.is_first else b""
            yield (
                before
                + piece.data
                + (_format_sse_event_trailer(str(piece.number) if with_ids else "") if piece.is_last else b"")
            )


def read_resume_position(request: Request) -> tuple[int, bool]:
    """Return the number after which a reader goes on, and whether it wants only what is still to come."""
    given = request.headers.get("last-event-id", "")
    if given in ("-1", "-"):
        return -1, False
    return (int(given), False) if given.isdecimal() else (-1, True)


class EventStreamResponse(StreamingResponse):
    """Server-sent events for a reader that is cut when it stops reading."""

    def __init__(
        self,
        chunks: AsyncIterator[bytes],
        headers: Mapping[str, str] | None = None,
        on_disconnect: Callable[[], Awaitable[None]] | None = None,
        content_type: str = "text/event-stream",
        patience_s: float | None = None,
    ) -> None:
        more = {"cache-control": "no-store", "x-accel-buffering": "no", **(headers or {})}
        super().__init__(chunks, headers=more, media_type=content_type)
        self._found, self._gone, self._patience = chunks, on_disconnect, patience_s

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        ended = False

        async def send_within_patience(message: Any) -> None:
            nonlocal ended
            try:
                async with asyncio.timeout(self._patience or PATIENCE_S):
                    await send(message)
            except TimeoutError:
                scope["state"]["cut"]()
                raise ClientDisconnect from None
            ended = message["type"] == "http.response.body" and not message.get("more_body", False)

        try:
            async with aclosing(cast(Any, self._found)):
                await super().__call__(scope, receive, send_within_patience)
        except ClientDisconnect:
            pass
        finally:
            if self._gone and not ended:
                await self._gone()


async def read_final_values_interrupts_or_error(events: AsyncIterator[EventPiece | None]) -> Any:
    """The values that a drive ended with, or its error, as `wait` answers them; of several interrupts, only these."""
    values: Any = None
    failed: Any = None
    asking: Any = None
    asked: dict[str, Any] = {}
    async for line in events:
        if line is None or line.event not in ("error", "values", "updates"):
            continue
        data = json.loads(line.data)
        if line.event == "error":
            failed = {"__error__": data}
        elif data and data.get("__interrupt__"):
            asked |= {one["id"]: one for one in data["__interrupt__"]}
            asking = data
        if line.event == "values":
            values = data
    if failed:
        return failed
    return asking if len(asked) == 1 else {"__interrupt__": [*asked.values()]} if asked else values


async def stream_keepalive_spaces_then_result(work: Coroutine[Any, Any, Any]) -> AsyncIterator[bytes]:
    """JSON that takes its time: spaces before it keep the connection open."""
    task = asyncio.ensure_future(work)
    try:
        while not (await asyncio.wait({task}, timeout=BEAT_S))[0]:
            yield b" "
        yield dump_json(task.result())
    finally:
        task.cancel()
