"""working_folder: the folder of a run as the process's own, while the run's graph is loaded or driven.

Rule: `docs/internals.md#a-runs-own-folder`.
"""

import os
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass
class _EnteredFolder:
    """The folder that this process works in for its runs. A process has one, whatever it drives."""

    folder: str = ""
    count: int = 0
    before: int | None = None
    """A descriptor of the folder to return to; None: it is gone, or could not be opened."""


_entered, _lock = _EnteredFolder(), threading.Lock()


@contextmanager
def use_working_folder(folder: Path) -> Generator[bool]:
    """Make `folder` the process's working directory inside the block, whoever started it from where.

    Yields False, and changes nothing, if the folder can't be entered, or if the process is inside another folder for
    another run: a process has only one.
    """
    inside = _enter_folder(os.path.realpath(folder))
    try:
        yield inside
    finally:
        if inside:
            _leave_folder()


def _enter_folder(folder: str) -> bool:
    with _lock:
        if _entered.count and _entered.folder != folder:
            return False
        if not _entered.count:
            before = _open_current_folder()
            try:
                os.chdir(folder)
            except OSError:
                if before is not None:
                    os.close(before)
                return False
            _entered.folder, _entered.before = folder, before
        _entered.count += 1
        return True


def _leave_folder() -> None:
    with _lock:
        _entered.count -= 1
        if _entered.count or _entered.before is None:
            return
        try:
            os.fchdir(_entered.before)
        finally:
            os.close(_entered.before)
            _entered.before = None


def _open_current_folder() -> int | None:
    try:
        return os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
