"""turns: a lock for a screen that one thread feeds without a pause and another one paints."""

import threading
from collections.abc import Generator
from contextlib import contextmanager


class Turns:
    """Whoever paints comes next: Python's own locks mostly go back to the thread that has just let go."""

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
    def last(self) -> Generator[None]:
        """For the thread that feeds."""
        self._nobody_waits.wait(1.0)  # a count that two threads changed at once holds nobody up for long
        with self._lock:
            yield
