"""keepalive: every byte that a server sends shows that it is at work, also those that its client hides.

Clients drop pings, comments and events that they don't know, and yield nothing while a long line arrives. A response
hook of httpx and httpx2 reports each piece of a body to whoever waits for the next part of the answer.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib import import_module
from typing import Any

PINGS_S = 600.0
"""Seconds for which pings and comments alone count."""
_STEP = 0.01
"""Share of a limit by which it is put off at least: not for every piece of a fast stream."""
_LOOKED = 64
"""Bytes of a line that say what it is."""
_UNCLEAR = 32
"""Bytes from which on an unfinished `data:` line is no ping."""
_PING = re.compile(rb"""(event:\s*|data:\s*("|\{\s*"type"\s*:\s*")?)(ping|keep-?alive|heartbeat)\b""", re.I)
_FIELDS = (b"event:", b"id:", b"retry:")
_HEARD: ContextVar[Callable[[bool], None] | None] = ContextVar("heard", default=None)


@contextmanager
def subscribe_to_bytes(heard: Callable[[bool], None]) -> Generator[None]:
    """Call `heard` for each piece of a body that this task receives meanwhile: whether it holds part of an answer."""
    around = _HEARD.get()

    def all_told(is_data: bool) -> None:
        heard(is_data)
        if around is not None:
            around(is_data)

    _HEARD.set(all_told)
    try:
        yield
    finally:
        _HEARD.set(around)


def report_body_bytes(response: Any) -> None:
    """Report the pieces of the response's body as they arrive."""
    made = _reporting_class(type(response).__module__.partition(".")[0])
    response.stream = made(response.stream)


@cache
def _reporting_class(client: str) -> Callable[[Any], Any]:
    """Return the class of streams for `httpx` or `httpx2`."""
    stream_class: type[Any] = import_module(client).AsyncByteStream

    class Reporting(stream_class):
        def __init__(self, source: Any) -> None:
            self._source, self._lines = source, BodyLines()

        async def __aiter__(self) -> AsyncGenerator[bytes, None]:
            async for piece in self._source:
                if (heard := _HEARD.get()) is not None:
                    heard(self._lines.contains_data(piece))
                yield piece

        async def aclose(self) -> None:
            await self._source.aclose()

    return Reporting


class BodyLines:
    """Reads the lines of a body, however it is cut, for what in them is part of an answer."""

    def __init__(self) -> None:
        self._begun = b""
        """How the unfinished line begins."""
        self._is_ping = False
        """Whether the event that is being read is a ping."""

    def contains_data(self, piece: bytes) -> bool:
        """Return whether the piece holds more than pings, comments and names."""
        found = False
        *whole, rest = piece.split(b"\n")
        for line in whole:
            found = self._is_data((self._begun + line[:_LOOKED]).rstrip(b"\r"), whole=True) or found
            self._begun = b""
        self._begun = (self._begun + rest[:_LOOKED])[:_LOOKED]
        return bool(rest and self._is_data(self._begun.rstrip(b"\r"), whole=False)) or found

    def _is_data(self, line: bytes, *, whole: bool) -> bool:
        if not line or line.startswith(b":"):
            self._is_ping = self._is_ping and bool(line)
            return False
        if line.startswith(_FIELDS):
            if line.startswith(b"event:"):
                self._is_ping = bool(_PING.match(line))
            return False
        if not whole and any(field.startswith(line) for field in (*_FIELDS, b"data:")):
            return False
        if not line.startswith(b"data:"):
            return True
        is_clear = whole or len(line) >= _UNCLEAR
        return is_clear and not self._is_ping and not _PING.match(line)


class ExtendableTimeout:
    """A time limit that bytes put off: by its whole length, but pings alone for no more than ten minutes."""

    def __init__(self, timer: asyncio.Timeout, limit_s: float, latest: float | None) -> None:
        """`latest`: the time of the loop beyond which nothing puts it off."""
        self._timer, self._limit_s, self._latest = timer, limit_s, latest
        self._time = asyncio.get_running_loop().time
        self._said = self._heard = self._time()

    def extend_for_bytes(self, is_data: bool) -> None:
        """Put the limit off for bytes that arrived now."""
        now = self._time()
        self._said = now if is_data else self._said
        if now - self._heard < self._limit_s * _STEP or self._timer.expired():
            return
        self._heard = now
        ends = now + self._limit_s if is_data else min(now + self._limit_s, self._said + PINGS_S)
        ends = max(ends, self._timer.when() or 0)
        self._timer.reschedule(ends if self._latest is None else min(ends, self._latest))

    @property
    def silent_s(self) -> float:
        """Seconds since bytes arrived, or since the wait began."""
        return self._time() - self._heard

    def describe_silence(self) -> str:
        """Return what is said of the limit once it has passed."""
        if self._heard - self._said > self._limit_s * _STEP:
            return f"nothing but signs of life came for {self._time() - self._said:.0f} s"
        return f"nothing came for {self._limit_s:g} s"
