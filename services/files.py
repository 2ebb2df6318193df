"""files: hashes of files, and writes that happen whole or not at all."""

import contextlib
import hashlib
import os
import stat
from pathlib import Path

from interlock.state.calls import CallKey

_CHUNK = 1 << 20
_NEW_FILE = 0o666
"""Mode of a new file, before the umask."""


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def now(path: str | Path) -> str | None:
    """sha256 of a file's bytes as it is now; None: no file. What can't be read is `unreadable`, equal to no hash."""
    digest = hashlib.sha256()
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116 - `path` may be either
            return "unreadable"
        with Path(path).open("rb") as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        return "unreadable"
    return digest.hexdigest()


def temporary(path: Path, key: CallKey) -> Path:
    """Where a write of this call goes first: the same name on each attempt, so that a leftover is found again."""
    return path.with_name(f".interlock-{sha256(f'{key.message}.{key.index}'.encode())[:16]}.tmp")


def remove_leftover(path: Path, key: CallKey) -> None:
    """Remove what a write that was killed left behind."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        temporary(path, key).unlink()


def write_atomically(path: Path, data: bytes, key: CallKey) -> None:
    """Replace a file's bytes, keeping its mode, or create it and its directories. Durable on return.

    `path` is a real path: links are followed before. Raises OSError (a full disk, missing permission) and then
    the file is as it was, and nothing is left behind.
    """
    make_directories(path.parent)
    scratch = temporary(path, key)
    remove_leftover(path, key)
    try:
        _write_synced(scratch, data, _mode(path))
        scratch.replace(path)
    except OSError:
        remove_leftover(path, key)
        raise
    sync_directory(path.parent)


def _mode(path: Path) -> int | None:
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except FileNotFoundError:
        return None


def _write_synced(path: Path, data: bytes, mode: int | None) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
    with os.fdopen(os.open(path, flags, _NEW_FILE if mode is None else 0o600), "wb") as file:
        if mode is not None:
            os.chmod(file.fileno(), mode)  # noqa: PTH101 - by descriptor, not by name
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def make_directories(directory: Path, mode: int = 0o777) -> None:
    """Create a directory and its parents, each durably in its own parent."""
    missing = [directory]
    while not missing[-1].exists():
        missing.append(missing[-1].parent)
    for made in reversed(missing[:-1]):
        made.mkdir(mode=mode, exist_ok=True)
        sync_directory(made.parent)


def sync_directory(directory: Path) -> None:
    """Make renames and new names in a directory survive a power cut."""
    descriptor = os.open(directory, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
