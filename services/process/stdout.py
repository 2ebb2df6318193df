"""stdout: keeps this process's stdout for its own output: whatever else writes there in the meantime, the programs of
nodes included, writes to stderr."""

import os
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager, nullcontext, redirect_stdout
from typing import TextIO

_lock = threading.Lock()
_users = 0
_real = -1
"""A duplicate of the descriptor that was 1."""
_own: TextIO | None = None
"""None: not kept, or the process's stdout isn't descriptor 1."""


def original_stdout() -> TextIO:
    """Return where this process's own output goes."""
    return _own or sys.stdout


@contextmanager
def redirect_stdout_to_stderr() -> Generator[None]:
    """Within it, descriptor 1 is stderr, also in programs that are started; `original_stdout` is what it was before."""
    global _users
    with _lock:
        if not _users:
            _redirect_stdout_descriptor()
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if not _users:
                _restore_stdout_descriptor()


@contextmanager
def redirect_prints_to_stderr() -> Generator[None]:
    """Within it, what is printed goes to stderr; on a terminal what Python prints: a session may draw there."""
    with nullcontext() if os.isatty(1) else redirect_stdout_to_stderr(), redirect_stdout(sys.stderr):
        yield


def _redirect_stdout_descriptor() -> None:
    global _real, _own
    sys.stdout.flush()
    _real = os.dup(1)
    os.dup2(2, 1)
    if _file_descriptor_or_minus_one(sys.stdout) == 1:
        out = sys.stdout
        _own = open(  # noqa: SIM115 - open until it is given back
            _real, "w", encoding=out.encoding, errors=out.errors, closefd=False
        )


def _restore_stdout_descriptor() -> None:
    global _own
    own, _own = _own, None
    try:
        sys.stdout.flush()  # printed by others
        if own:
            own.close()
    finally:
        os.dup2(_real, 1)
        os.close(_real)


def _file_descriptor_or_minus_one(stream: TextIO) -> int:
    """Its descriptor; -1: it has none, as in a test."""
    try:
        return stream.fileno()
    except (OSError, ValueError):
        return -1
