"""terminal: changes of the terminal's settings, which wait until the terminal is this process's to change.

The kernel stops a process in the background that changes its terminal. It doesn't stop a fork of the warm process,
which is of another session: `warm/warm_server.py` sets what such a fork waits for.
"""

import sys
import termios
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from typing import Any


class Foreground:
    """What a process waits for before it changes its terminal's settings."""

    def __init__(self) -> None:
        self.wait: Callable[[], object] = lambda: None


FOREGROUND = Foreground()


def set_terminal_attributes(settings: list[Any]) -> None:
    """Change the terminal's settings. Raises `termios.error` if it is gone."""
    FOREGROUND.wait()
    termios.tcsetattr(sys.stdin, termios.TCSANOW, settings)


def discard_typed_input() -> None:
    """Forget what was typed and isn't read yet."""
    FOREGROUND.wait()
    termios.tcflush(sys.stdin, termios.TCIFLUSH)


@contextmanager
def enter_mode_in_foreground(mode: AbstractContextManager[None]) -> Generator[None]:
    """Enter and leave a mode of the terminal, each once the terminal is this process's to change."""
    FOREGROUND.wait()
    with mode:
        try:
            yield
        finally:
            FOREGROUND.wait()
