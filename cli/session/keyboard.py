"""keyboard: what is typed while nothing reads it isn't shown, and is there for the next question or prompt."""

import signal
import sys
import termios
from collections.abc import Generator
from contextlib import contextmanager, suppress

from interlock.cli.driving import is_plain


@contextmanager
def held() -> Generator[None]:
    """From here to the process's last moment; before, the terminal echoes. Questions and prompts show what
    they are given.

    Ctrl-C interrupts as ever, and SIGTERM gives the terminal back, too. Where the cursor can't be moved, lines are
    typed in the terminal itself, and nothing is held.
    """
    if is_plain():
        yield
        return
    before, quiet = termios.tcgetattr(sys.stdin), termios.tcgetattr(sys.stdin)
    quiet[0] &= ~termios.ICRNL  # an Enter stays one
    quiet[3] &= ~(termios.ECHO | termios.ICANON)
    ends = signal.signal(signal.SIGTERM, _leave)
    try:
        termios.tcsetattr(sys.stdin, termios.TCSANOW, quiet)
        _keep()
        yield
    except (
        SystemExit
    ):  # out of a question, wherever it was: pastes are unmarked again, and the cursor is seen
        print("\x1b[?2004l\x1b[?25h", end="", flush=True)
        raise
    finally:
        with suppress(termios.error):  # the terminal is gone
            termios.tcsetattr(sys.stdin, termios.TCSANOW, before)
        signal.signal(signal.SIGTERM, ends)


def _leave(number: int, _: object) -> None:
    sys.exit(128 + number)


def _keep() -> None:
    """What was typed before: the terminal has made new lines of its Enters."""
    from prompt_toolkit.input import create_input
    from prompt_toolkit.input.typeahead import store_typeahead
    from prompt_toolkit.key_binding.key_processor import KeyPress
    from prompt_toolkit.keys import Keys

    enter, source = KeyPress(Keys.Enter, "\r"), create_input()
    while keys := source.read_keys():
        store_typeahead(source, [enter if key.key == Keys.ControlJ else key for key in keys])
