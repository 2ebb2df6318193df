"""in_thread: a tool's work off the event loop, that stops when nobody waits for it any more."""

import asyncio
import threading
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Stopped(Exception):  # noqa: N818 - no fault: the call was cancelled or its time is up
    """Ends the work in its thread; nobody sees it."""


class Stop:
    """A thread can't be ended from outside, so work that may be long asks now and then."""

    def __init__(self) -> None:
        self._asked = threading.Event()

    def ask(self) -> None:
        self._asked.set()

    def check(self) -> None:
        if self._asked.is_set():
            raise Stopped


async def in_thread(work: Callable[Concatenate[Stop, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
    """The result of `work(stop, ...)`. When the awaiting task is cancelled, the work is asked to stop."""
    stop = Stop()
    try:
        return await asyncio.to_thread(work, stop, *args, **kwargs)
    except asyncio.CancelledError:
        stop.ask()
        raise
