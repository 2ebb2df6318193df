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

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_SAME_PRESS_S = 0.1
"""Seconds in which a second signal is an echo of the first: `timeout` signals its child, then the group."""
_CANCELLED = 130
"""Exit code (`cli.md`)."""
_SHOW_CURSOR = b"\x1b[?25h\x1b[0m"


@contextmanager
def stop_on_signals(request: Callable[[], None]) -> Generator[None]:
    """While inside, the first SIGINT or SIGTERM calls `request` on the running loop; a second ends us.

    Drives that overlap in one process share the handler. Outside the main thread nothing is installed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    current = signal.getsignal(signal.SIGINT)
    handler = current if isinstance(current, _Handler) else _Handler()
    handler.join(request)
    try:
        yield
    finally:
        handler.leave(request)


class _Handler:
    """A plain signal handler, not the loop's: the second signal works while the loop is busy."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._requests: list[Callable[[], None]] = []
        self._first_at: float | None = None
        self._terminal = _terminal_settings()
        self._previous = {number: signal.signal(number, self) for number in _SIGNALS}

    def join(self, request: Callable[[], None]) -> None:
        self._requests.append(request)
        if self._first_at is not None:
            request()

    def leave(self, request: Callable[[], None]) -> None:
        self._requests.remove(request)
        if not self._requests:
            for number, previous in self._previous.items():
                signal.signal(number, previous)

    def __call__(self, _number: int, _frame: FrameType | None) -> None:
        now = time.monotonic()
        if self._first_at is None:
            self._first_at = now
            for request in self._requests:
                self._loop.call_soon_threadsafe(request)
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
