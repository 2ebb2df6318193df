"""race: the pieces of a stream, until stalled or out of time."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any, TypeVar

T = TypeVar("T")


class StalledError(TimeoutError):
    """Nothing came for too long."""


class _End:
    pass


_END = _End()
_PARTS = 4
"""Of a stall; at the end of each but the last it is told."""


async def raced(
    source: AsyncGenerator[T, None],
    *,
    stall_s: float,
    total_s: float | None,
    on_silence: Callable[[float], None] = lambda _seconds: None,
) -> AsyncGenerator[T, None]:
    """Yield from `source`, which is always closed.

    Raises `StalledError` after `stall_s` without a piece, `TimeoutError` after `total_s` in all. `on_silence` hears
    of each quarter of a stall.
    """
    loop = asyncio.get_running_loop()
    deadline = None if total_s is None else loop.time() + total_s
    step: asyncio.Future[T | _End] | None = None
    try:
        while True:
            wait_s = stall_s if deadline is None else min(stall_s, deadline - loop.time())
            step = asyncio.ensure_future(anext(source, _END))
            await _until({step}, wait_s, on_silence if wait_s == stall_s else None)
            if not step.done():
                if wait_s == stall_s:
                    raise StalledError(f"nothing came for {stall_s:g} s")
                raise TimeoutError(f"over {total_s:g} s")
            item = step.result()
            if isinstance(item, _End):
                return
            yield item
    finally:
        if step is not None:
            await _ended(step)
        await source.aclose()


async def _until(
    tasks: set[asyncio.Future[Any]], wait_s: float, on_silence: Callable[[float], None] | None
) -> None:
    """Until one of the tasks is done, or the time is over; silence is told at the end of each part but the last."""
    for part in range(1, _PARTS + 1):
        await asyncio.wait(tasks, timeout=max(0.0, wait_s / _PARTS), return_when=asyncio.FIRST_COMPLETED)
        if any(task.done() for task in tasks):
            return
        if on_silence and part < _PARTS:
            on_silence(wait_s * part / _PARTS)


async def _ended(step: "asyncio.Future[T | _End]") -> None:
    """A generator can't be closed while it runs; and asyncio complains of an exception that nobody looked at."""
    if not step.done():
        step.cancel()
        await asyncio.wait({step})
    if not step.cancelled():
        step.exception()
