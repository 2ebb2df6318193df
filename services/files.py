"""files: hashes of files, and writes that happen whole or not at all."""

import contextlib
import hashlib
import os
import stat
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
    with contextlib.suppress(FileNotFoundError):
        os.unlink(_temporary(place, key), dir_fd=place.directory)


def write_atomically(place: Place, data: bytes, key: CallKey) -> None:
    """Replace a file's bytes, keeping its mode, or create it. Durable on return.

    What is replaced is the name: another name of the same file (a hard link) keeps the old bytes. Raises OSError
    (a full disk, missing permission) and then the file is as it was, and nothing is left behind.
    """
    scratch = _temporary(place, key)
    with _synced(place.directory):
        remove_leftover(place, key)
        try:
            _write_synced(Place(place.directory, scratch), data, _mode(place))
            os.replace(scratch, place.name, src_dir_fd=place.directory, dst_dir_fd=place.directory)
        except OSError:
            remove_leftover(place, key)
            raise


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
def _synced(directory: int) -> Generator[None]:
    """What happens inside survives a power cut. Opened first: where it can't be synced nothing is begun."""
    descriptor = os.open(".", _DIRECTORY, dir_fd=directory)
    try:
        yield
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_at(directory: int) -> None:
    """As `sync_directory`, for a descriptor that may serve for `dir_fd` only."""
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


def sync_directory(directory: Path) -> None:
    """Make renames and new names in a directory survive a power cut."""
    descriptor = os.open(directory, _DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
