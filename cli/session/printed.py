"""printed: what a command of the command line prints, shown in the session."""

import io
import sys
from collections.abc import Generator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from importlib import import_module
from threading import Lock

from interlock.cli.render.output import redacted
from interlock.state.errors import InterlockError

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
            code = import_module(f"interlock.cli.commands.{name}").execute(arguments)
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
