"""folders: creates directories durably, and keeps the program's own files closed to other users."""

import os
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

CLOSED_FILE = 0o600
"""Mode of a file that keeps it, or gets its own mode once it exists."""
OWNER_DIRECTORY = 0o700
_OTHERS = 0o077
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY


@contextmanager
def synced(directory: int | Path) -> Generator[None]:
    """Make changes inside the block survive a power cut. Opened first, so that nothing starts if it can't be synced.

    A descriptor may be usable only as `dir_fd`.
    """
    if isinstance(directory, Path):
        descriptor = os.open(directory, _DIRECTORY)
    else:
        descriptor = os.open(".", _DIRECTORY, dir_fd=directory)
    try:
        yield
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_directory(directory: int | Path) -> None:
    """Make renames and new names in a directory survive a power cut."""
    with synced(directory):
        pass


def private_directory(directory: Path) -> None:
    """Create one of our directories and its missing parents durably, for their owner alone."""
    make_directories(directory, OWNER_DIRECTORY)


def private_file(path: Path) -> None:
    """Create an empty file for its owner alone, unless it exists: SQLite and others would let everybody read it."""
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, CLOSED_FILE))


def close_to_others(path: Path) -> bool:
    """Take other users' permissions from a file or directory and all below it; returns whether any had one."""
    open_to_others = False
    for folder, names, files in os.walk(path):
        for name in (*names, *files):
            open_to_others |= _close_to_others(os.path.join(folder, name))  # noqa: PTH118 - thousands
    return _close_to_others(str(path)) or open_to_others


def _close_to_others(path: str) -> bool:
    with suppress(FileNotFoundError):
        mode = os.lstat(path).st_mode
        if not stat.S_ISLNK(mode) and mode & _OTHERS:
            os.chmod(path, stat.S_IMODE(mode) & ~_OTHERS)  # noqa: PTH101 - thousands
            return True
    return False


def make_directories(directory: Path, mode: int = 0o777) -> None:
    """Create a directory and its missing parents durably."""
    missing = [directory]
    while not missing[-1].exists():
        missing.append(missing[-1].parent)
    for made in reversed(missing[:-1]):
        made.mkdir(mode=mode, exist_ok=True)
        sync_directory(made.parent)
