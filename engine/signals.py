"""signals: Ctrl-C once stops the run cleanly, twice ends the process; it can be resumed (`engine.md` 18)."""

import asyncio
import os
import signal
import sys
import termios
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SAME_PRESS_S = 0.1
"""Seconds in which a second signal is an echo of the first: `timeout` signals its child, then the group."""
_CANCELLED = 130
"""Exit code (`cli.md`)."""
_SHOW_CURSOR = b"\x1b[?25h\x1b[0m"


@contextmanager
def signals_held() -> Generator["_Handler | None"]:
    """While inside, the first SIGINT, SIGTERM or SIGHUP is kept for whatever drives a run here; a second ends us.

    Entered before the loop is made, for asyncio would install a handler of its own, which cancels whatever the run has
    just begun. Outside the main thread nothing is installed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield None
        return
    current = signal.getsignal(signal.SIGINT)
    handler = current if isinstance(current, _Handler) else _Handler()
    handler.users += 1
    try:
        yield handler
    finally:
        handler.users -= 1
        if not handler.users:
            handler.restore()


@contextmanager
def stop_on_signals(request: Callable[[], None]) -> Generator[None]:
    """As `signals_held`, and the first signal, also one that came already, calls `request` on the running loop.

    Drives that overlap in one process share the handler.
    """
    with signals_held() as handler:
        if handler is None:
            yield
            return
        handler.join(request)
        try:
            yield
        finally:
            handler.leave(request)


class _Handler:
    """A plain signal handler, not the loop's: the second signal works while the loop is busy."""

    def __init__(self) -> None:
        self.users = 0
        self._requests: dict[Callable[[], None], asyncio.AbstractEventLoop] = {}
        self._first_at: float | None = None
        self._terminal = _terminal_settings()
        # Who ignores a hang-up, as `nohup` does, means it.
        numbers = [n for n in _SIGNALS if n != signal.SIGHUP or signal.getsignal(n) != signal.SIG_IGN]
        self._previous = {number: signal.signal(number, self) for number in numbers}

    def join(self, request: Callable[[], None]) -> None:
        self._requests[request] = asyncio.get_running_loop()
        if self._first_at is not None:
            request()

    def leave(self, request: Callable[[], None]) -> None:
        del self._requests[request]

    def restore(self) -> None:
        for number, previous in self._previous.items():
            signal.signal(number, previous)

    def __call__(self, _number: int, _frame: FrameType | None) -> None:
        now = time.monotonic()
        if self._first_at is None:
            self._first_at = now
            for request, loop in self._requests.items():
                loop.call_soon_threadsafe(request)
        elif now - self._first_at > _SAME_PRESS_S:
            _restore_terminal(self._terminal)
            os._exit(_CANCELLED)  # supervised processes end with it, by end-of-file


def _terminal_settings() -> list[Any] | None:
    try:
        return termios.tcgetattr(0)
    except termios.error:
        return None


def _restore_terminal(settings: list[Any] | None) -> None:
    # From the background, changing a terminal would stop this process instead of ending it.
    if settings is None or os.tcgetpgrp(0) != os.getpgrp():
        return
    termios.tcsetattr(0, termios.TCSANOW, settings)
    if sys.stderr.isatty():
        os.write(2, _SHOW_CURSOR)
