"""_printing: what somebody's nodes print goes to stderr: stdout is for a run's answer."""

import sys
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TextIO, cast

_INSIDE: ContextVar[bool] = ContextVar("inside a foreign graph", default=False)


class _Split:
    """Stands for stdout: writes from inside a graph, also from its threads, go to stderr; others as before."""

    def __init__(self, out: TextIO) -> None:
        self.out = out

    def __getattr__(self, name: str) -> Any:
        return getattr(sys.stderr if _INSIDE.get() else self.out, name)


@contextmanager
def printed_aside() -> Generator[None]:
    """Within it, and in tasks and threads started there, stdout is stderr."""
    if not isinstance(sys.stdout, _Split):
        sys.stdout = cast(Any, _Split(sys.stdout))
    token = _INSIDE.set(True)
    try:
        yield
    finally:
        _INSIDE.reset(token)
