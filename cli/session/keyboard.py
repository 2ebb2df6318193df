"""keyboard: turns the terminal's echo off: while nothing reads what is typed, and for an API key in plain mode."""

import signal
import sys
import termios
from collections.abc import Generator
from contextlib import contextmanager, suppress

from interlock.cli.driving import is_plain


@contextmanager
def held() -> Generator[None]:
    """Hide what is typed while nothing reads it, and keep it for the next question or prompt.

    Lasts until the process ends; before this, the terminal echoes. Where the cursor can't be moved, lines are typed
    in the terminal itself, and nothing is held.
    """
    if is_plain():
        yield
        return
    with _quiet(termios.ICRNL, termios.ECHO | termios.ICANON):  # Enter stays \r
        try:
            _keep()
            yield
        except SystemExit:  # interrupted in a question: turn bracketed paste off and show the cursor
            print("\x1b[?2004l\x1b[?25h", end="", flush=True)
            raise


@contextmanager
def unechoed() -> Generator[None]:
    """Turn echo off where the terminal itself echoes lines. What was typed before isn't lost."""
    if not is_plain():
        yield
        return
    with _quiet(0, termios.ECHO):
        yield


@contextmanager
def _quiet(input_flags: int, local_flags: int) -> Generator[None]:
    """Clear these terminal flags. Ctrl-C still interrupts; SIGTERM restores the terminal first."""
    before, quiet = termios.tcgetattr(sys.stdin), termios.tcgetattr(sys.stdin)
    quiet[0] &= ~input_flags
    quiet[3] &= ~local_flags
    ends = signal.signal(signal.SIGTERM, _leave)
    try:
        termios.tcsetattr(sys.stdin, termios.TCSANOW, quiet)
        yield
    finally:
        with suppress(termios.error):  # the terminal is gone
            termios.tcsetattr(sys.stdin, termios.TCSANOW, before)
        signal.signal(signal.SIGTERM, ends)


def _leave(number: int, _: object) -> None:
    sys.exit(128 + number)


def _keep() -> None:
    """Keep what was typed before; the terminal had turned its Enters into newlines."""
    from prompt_toolkit.input import create_input
    from prompt_toolkit.input.typeahead import store_typeahead
    from prompt_toolkit.key_binding.key_processor import KeyPress
    from prompt_toolkit.keys import Keys

    enter, source = KeyPress(Keys.Enter, "\r"), create_input()
    while keys := source.read_keys():
        store_typeahead(source, [enter if key.key == Keys.ControlJ else key for key in keys])
