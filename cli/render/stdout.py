"""stdout: writes to it whole, and leaves it well when its reader is gone. Light: the lists import it."""

import os
import sys
from typing import Any

from interlock.state.text import visible_json


def write_json(value: Any, indent: int | None = None) -> None:
    """One JSON value and a line end, in one write."""
    sys.stdout.write(visible_json(value, indent) + "\n")
    sys.stdout.flush()


def close_stdout() -> None:
    """The reader is gone (`| head`): leave nothing behind that Python would try to flush at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
