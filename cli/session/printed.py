"""printed: what a command of the command line prints, shown in the session."""

import io
import shlex
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from threading import Lock
from typing import TYPE_CHECKING

from rich.text import Text

from interlock.cli.catalog import execute
from interlock.cli.render.output import redacted
from interlock.state.errors import InterlockError, UserError

if TYPE_CHECKING:
    from interlock.cli.session.session import Session

_MOST_LINES = 400
"""Of a command's output; what is longer is read better in a pager."""
_alone = Lock()
"""Output of the process has one place at a time."""


class _Page(io.StringIO):
    """Taken for a terminal, so that what is printed has its colours and its width."""

    def isatty(self) -> bool:
        return True


def printed(name: str, arguments: list[str]) -> tuple[int, str]:
    """Run `interlock NAME ARGUMENTS`, which can ask nobody; the exit code and all that it says, with its colours."""
    page = _Page()
    with _alone, redirect_stdout(page), redirect_stderr(page), _nobody_there():
        try:
            code = execute(name, arguments)
        except InterlockError as error:
            page.write(redacted(str(error)))
            code = error.exit_code
        except SystemExit as end:  # --help
            code = int(end.code or 0)
    return code, page.getvalue().rstrip()


@contextmanager
def _nobody_there() -> Generator[None]:
    keyboard, sys.stdin = sys.stdin, io.StringIO()
    try:
        yield
    finally:
        sys.stdin = keyboard


async def show_printed(session: "Session", name: str, arguments: Sequence[str]) -> str:
    """What `interlock NAME ARGUMENTS` prints, which is shown; nothing where it failed."""
    code, text = await session.in_thread(lambda: printed(name, [*arguments]))
    lines = text.split("\n") if text else []
    shown = "\n".join(lines[:_MOST_LINES])
    if shown:
        session.screen.show(Text.from_ansi(shown))
    if len(lines) > _MOST_LINES:
        command = shlex.join(["interlock", name, *arguments])
        session.screen.note(f"… {len(lines) - _MOST_LINES:,} more lines: {command}")
    return "" if code else text


def words(rest: str) -> list[str]:
    """As a shell splits them. Raises `UserError`."""
    try:
        return shlex.split(rest)
    except ValueError as error:
        raise UserError(f"{rest!r} can't be read: {error}. Close the quotes.") from None
