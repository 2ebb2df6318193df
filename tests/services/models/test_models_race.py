"""Races between a stream and time: whatever wins, the stream is closed."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from interlock.services.models.failure import raced

pytestmark = pytest.mark.anyio


class Source:
    """Yields numbers; waits forever before `stuck`."""

    def __init__(self, stuck: int = -1, error: Exception | None = None) -> None:
        self.stuck = stuck
        self.error = error
        self.closed = False

    async def __call__(self) -> AsyncGenerator[int, None]:
        try:
            for n in range(4):
                if n == self.stuck:
                    await asyncio.Event().wait()
                yield n
            if self.error is not None:
                raise self.error
        finally:
            self.closed = True


async def drain(source: Source, stall_s: float = 60, total_s: float | None = None, **more: Any) -> list[int]:
    return [n async for n in raced(source(), stall_s=stall_s, total_s=total_s, **more)]


@pytest.mark.parametrize(
    ("source", "limits", "error", "says"),
    [
        (Source(stuck=2), {"stall_s": 0.05}, TimeoutError, r"nothing came for 0\.05 s"),
        (Source(stuck=1), {"total_s": 0.05}, TimeoutError, r"over 0\.05 s"),
        (  # a server that tells how far it has read the prompt hasn't begun to answer
            Source(stuck=2),
            {"first_s": 0.05, "begins": lambda n: n > 1},
            TimeoutError,
            r"nothing came for 0\.05 s",
        ),
        (Source(error=OSError("gone")), {}, OSError, "gone"),
    ],
)
async def test_a_stream_that_stalls_fails_or_is_out_of_time_is_closed(
    source: Source, limits: dict[str, Any], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        await drain(source, **limits)
    assert source.closed
