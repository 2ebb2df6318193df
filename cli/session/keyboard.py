"""keyboard: what the terminal doesn't echo: what is typed while nothing reads it, and a key where lines are typed."""

import signal
import sys
import termios
from collections.abc import Generator
from contextlib import contextmanager, suppress

from interlock.cli.driving import is_plain


@contextmanager
def held() -> Generator[None]:
    """What is typed while nothing reads it isn't shown, and is there for the next question or prompt.

    From here to the process's last moment; before, the terminal echoes. Where the cursor can't be moved, lines are
    typed in the terminal itself, and nothing is held.
    """
    if is_plain():
        yield
        return
    with _quiet(termios.ICRNL, termios.ECHO | termios.ICANON):  # an Enter stays one
        try:
            _keep()
            yield
        except (
            SystemExit
        ):  # out of a question, wherever it was: pastes are unmarked again, the cursor is seen
            print("\x1b[?2004l\x1b[?25h", end="", flush=True)
            raise


@contextmanager
def unechoed() -> Generator[None]:
    """Where the terminal itself echoes lines, it doesn't echo these. What was typed before isn't lost."""
    if not is_plain():
        yield
        return
    with _quiet(0, termios.ECHO):
        yield


@contextmanager
def _quiet(input_flags: int, local_flags: int) -> Generator[None]:
    """Without these flags. Ctrl-C interrupts as ever, and SIGTERM gives the terminal back, too."""
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
    """What was typed before: the terminal has made new lines of its Enters."""
    from prompt_toolkit.input import create_input
    from prompt_toolkit.input.typeahead import store_typeahead
    from prompt_toolkit.key_binding.key_processor import KeyPress
    from prompt_toolkit.keys import Keys

    enter, source = KeyPress(Keys.Enter, "\r"), create_input()
    while keys := source.read_keys():
        store_typeahead(source, [enter if key.key == Keys.ControlJ else key for key in keys])
