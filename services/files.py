"""files: hashes of files, writes that happen whole or not at all, and directories that are locked and synced."""

import contextlib
import errno
import fcntl
import hashlib
import os
import stat
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from interlock.state.calls import CallKey
from interlock.state.tooling import Place
from interlock.tools._places import open_file, status_at

_CHUNK = 1 << 20
_NEW_FILE = 0o666
"""Mode of a new file, before the umask."""
_CLOSED_FILE = 0o600
"""Mode of a file that gets its own once it is there."""
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY
_LOOK_AGAIN_S = 0.02


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def hash_at(place: Place) -> str | None:
    """sha256 of a file's bytes as it is now; None: no file. What can't be read is `unreadable`, equal to no hash."""
    digest = hashlib.sha256()
    try:
        with open_file(place) as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
    except FileNotFoundError:
        return None
    except OSError:
        return "unreadable"
    return digest.hexdigest()


def temporary(path: Path, key: CallKey) -> Path:
    """Where a write of this call goes first: the same name on each attempt, so that a leftover is found again."""
    return path.with_name(f".interlock-{sha256(f'{key.message}.{key.index}'.encode())[:16]}.tmp")


def remove_leftover(place: Place, key: CallKey) -> None:
    """Remove what a write that was killed left behind."""
    _remove(place.directory, _temporary(place, key))


def write_atomically(place: Place, data: bytes, key: CallKey) -> None:
    """Replace a file's bytes, keeping its mode, or create it. Durable on return.

    What is replaced is the name: another name of the same file (a hard link) keeps the old bytes. Raises OSError
    (a full disk, missing permission) and then the file is as it was, and nothing is left behind.
    """
    _replace(place, data, _temporary(place, key), _mode(place))


def replace_file(path: Path, data: bytes) -> None:
    """As `write_atomically`, for a file of ours that its owner alone may read. Its writers take turns (`locked`)."""
    directory = os.open(path.parent, _DIRECTORY)
    try:
        _replace(Place(directory, path.name), data, f".{path.name}.tmp", _CLOSED_FILE)
    finally:
        os.close(directory)


@contextmanager
def locked(folder: Path, wait_s: float | None = None) -> Generator[None]:
    """One at a time, over all processes; a killed one leaves no lock. Raises `TimeoutError` after `wait_s`."""
    handle = os.open(folder, _DIRECTORY)
    until = None if wait_s is None else time.monotonic() + wait_s
    try:
        while not _taken(handle, wait=until is None):
            if until is not None and time.monotonic() > until:
                why = f"another process has been writing there for {wait_s:g} s"
                raise TimeoutError(errno.ETIMEDOUT, why)
            time.sleep(_LOOK_AGAIN_S)
        yield
    finally:
        os.close(handle)


def _taken(handle: int, wait: bool) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _replace(place: Place, data: bytes, scratch: str, mode: int | None) -> None:
    with _synced(place.directory):
        _remove(place.directory, scratch)
        try:
            _write_synced(Place(place.directory, scratch), data, mode)
            os.replace(scratch, place.name, src_dir_fd=place.directory, dst_dir_fd=place.directory)
        except OSError:
            _remove(place.directory, scratch)
            raise


def _remove(directory: int, name: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=directory)


def _temporary(place: Place, key: CallKey) -> str:
    return temporary(Path(place.name), key).name


def _mode(place: Place) -> int | None:
    try:
        return stat.S_IMODE(status_at(place).st_mode)
    except FileNotFoundError:
        return None


def _write_synced(place: Place, data: bytes, mode: int | None) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    descriptor = os.open(
        place.name, flags, _NEW_FILE if mode is None else _CLOSED_FILE, dir_fd=place.directory
    )
    with os.fdopen(descriptor, "wb") as file:
        if mode is not None:
            os.chmod(file.fileno(), mode)  # noqa: PTH101 - by descriptor, not by name
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def _synced(directory: int | Path) -> Generator[None]:
    """What happens inside survives a power cut. Opened first: where it can't be synced nothing is begun.

    A descriptor may be one that serves for `dir_fd` only.
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
    with _synced(directory):
        pass


def make_directories(directory: Path, mode: int = 0o777) -> None:
    """Create a directory and its parents, each durably in its own parent."""
    missing = [directory]
    while not missing[-1].exists():
        missing.append(missing[-1].parent)
    for made in reversed(missing[:-1]):
        made.mkdir(mode=mode, exist_ok=True)
        sync_directory(made.parent)
