"""placeholders: names that must not come into being while a command runs, held by something empty that is read only.

A mount needs something to stand on, so it lies in the real workspace for as long as a command runs. Several runs may
hold the same one: each has a shared lock on it, and only who can lock it alone removes it (removing it would take the
mount away from the others). What a killed run left is removed after the next command there.
"""

import errno
import fcntl
import os
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

_TRIES = 100
_FOLDER = 0o1555
"""Nobody makes folders with these permissions: they tell ours from an empty one of the user's."""
_TELLING = 0o1222
_READ_ONLY = (errno.EACCES, errno.EPERM, errno.EROFS)


def is_placeholder(path: Path, content: bytes | None) -> bool:
    """Made here, by whichever run."""
    try:
        if content is not None:
            return path.is_file() and path.stat().st_size == len(content) and path.read_bytes() == content
        return (
            path.is_dir() and path.stat().st_mode & _TELLING == _FOLDER & _TELLING and not any(path.iterdir())
        )
    except OSError:
        return False


@contextmanager
def held(missing: Mapping[Path, bytes | None]) -> Generator[None]:
    """Path → content of a file, or None for a folder. What can't be made can't come into being. Raises `OSError`."""
    with ExitStack() as stack:
        for path, content in missing.items():
            try:
                stack.enter_context(_one(path, content))
            except OSError as error:
                if error.errno not in _READ_ONLY:
                    raise
        yield


@contextmanager
def _one(path: Path, content: bytes | None) -> Generator[None]:
    descriptor = _locked(path, content)
    try:
        yield
    finally:
        with suppress(BlockingIOError):  # another run still holds it
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove(path, content)
        os.close(descriptor)


def _locked(path: Path, content: bytes | None) -> int:
    """Made, open and locked; again if somebody removed it between these."""
    for _ in range(_TRIES):
        _make(path, content)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            if os.path.samestat(os.fstat(descriptor), path.lstat()):
                return descriptor
        except FileNotFoundError:
            pass
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
    raise FileExistsError(f"{path} comes and goes")


def _make(path: Path, content: bytes | None) -> None:
    if content is None:
        with suppress(FileExistsError):
            path.mkdir(_FOLDER)
        return
    with suppress(FileExistsError), path.open("xb") as file:
        file.write(content)


def _remove(path: Path, content: bytes | None) -> None:
    if not is_placeholder(path, content):
        return  # a person's own work meanwhile
    with suppress(OSError):  # or just now
        if content is None:
            path.rmdir()
        else:
            path.unlink()
