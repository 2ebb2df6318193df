"""terminal_output: how a session writes to its terminal: batched, in limited portions, with keys never kept waiting."""

import os
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from prompt_toolkit.application import Application
from prompt_toolkit.data_structures import Size
from prompt_toolkit.output.vt100 import Vt100_Output

PRINTED = 65_536
"""Characters that one painting prints above: a slow terminal mustn't keep a key waiting."""


class BatchedOutput(Vt100_Output):
    """Batches several paintings into one write, which avoids flicker."""

    def __init__(self, stream: Any) -> None:
        super().__init__(stream, terminal_size, term=os.environ.get("TERM"), enable_cpr=False)
        self._held = False

    @contextmanager
    def hold_writes(self) -> Generator[None]:
        self._held = True
        try:
            yield
        finally:
            self._held = False
            self.flush()

    def flush(self) -> None:
        if self._held:
            return
        try:
            super().flush()
        except OSError:  # the terminal is gone; the run is still stopped cleanly
            self._buffer.clear()


def terminal_size() -> Size:
    try:
        columns, rows = os.get_terminal_size(sys.stdout.fileno())
    except OSError:
        columns, rows = 0, 0
    return Size(rows=rows or 24, columns=columns or 80)


def split_first_print_chunk(text: str) -> tuple[str, str]:
    if len(text) <= PRINTED:
        return text, ""
    end = text.rfind("\n", 0, PRINTED) + 1 or text.find("\n") + 1 or len(text)
    return text[:end], text[end:]


def make_once_after_render_handler(
    app: Application[None], work: Callable[[], None]
) -> Callable[[object], None]:
    """A handler of `app.after_render` that does the work once, after the first painting."""

    def called(_: object) -> None:
        app.after_render -= called
        work()

    return called


class PainterFirstLock:
    """A lock that prefers the painter: Python's own mostly go back to the thread that has just released them."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._waiting = 0
        self._nobody_waits = threading.Event()
        self._nobody_waits.set()

    def __enter__(self) -> None:
        self._waiting += 1
        self._nobody_waits.clear()
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._waiting -= 1
        if not self._waiting:
            self._nobody_waits.set()
        self._lock.release()

    @contextmanager
    def acquire_after_painter(self) -> Generator[None]:
        """Take the lock for feeding events, once no painter waits."""
        self._nobody_waits.wait(1.0)  # times out in case two threads changed the count at once
        with self._lock:
            yield
