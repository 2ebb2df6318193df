"""view: what a renderer of the command line is; it shows events while they come, and the outcome at the end."""

import json
import os
import sys
from datetime import UTC, datetime
from typing import Any, Protocol

from interlock.engine.options import Outcome
from interlock.state.errors import InterlockError
from interlock.state.events import Event


class View(Protocol):
    """Called with events on a thread of its own, then once with how it ended."""

    def __call__(self, event: Event, /) -> None: ...

    def finish(self, outcome: Outcome) -> None: ...

    def failed(self, error: InterlockError) -> None:
        """The run did not start, or broke off. The one-line error itself goes to stderr elsewhere."""
        ...


def timestamp() -> str:
    """UTC with milliseconds, as JavaScript's `toISOString` writes it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def write_json(value: Any, indent: int | None = None) -> None:
    """One JSON value and a line end on stdout, whole at once."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False, indent=indent) + "\n")
    sys.stdout.flush()


def close_stdout() -> None:
    """The reader is gone (`| head`): leave nothing behind that Python would try to flush at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
