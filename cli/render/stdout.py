"""stdout: what the command line writes by itself: whole, without secrets, and well when its reader is gone. Light."""

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


def redacted(text: str) -> str:
    """Errors quote what they met: settings, URLs, answers of servers; headlines quote the prompt."""
    from interlock.services.secrets.environment import secret_variables
    from interlock.services.secrets.redaction import Redactor

    return Redactor(secret_variables(os.environ))(text)
