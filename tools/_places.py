"""places: opening what stands at a place of the workspace, without following a link and without waiting for a pipe."""

import errno
import os
import stat
from collections.abc import Generator
from contextlib import contextmanager
from io import BufferedReader
from typing import Literal

from interlock.state.tooling import Place

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
_LINK = "a link was put there meanwhile"


Kind = Literal["directory", "file", "link", "other"]


class NotAFileError(OSError):
    """A device, pipe or socket stands there."""


def status_at(place: Place) -> os.stat_result:
    """Raises OSError: ELOOP for a link, since what was checked is a real path."""
    found = os.stat(place.name, dir_fd=place.directory, follow_symlinks=False)
    if stat.S_ISLNK(found.st_mode):
        raise OSError(errno.ELOOP, _LINK)
    return found


def open_file(place: Place) -> BufferedReader:
    """A regular file, for reading. Raises OSError: `IsADirectoryError`, `NotAFileError`, ELOOP for a link, …"""
    _check(status_at(place))  # opening a device may already do something
    descriptor = os.open(place.name, _READ, dir_fd=place.directory)
    try:
        _check(os.fstat(descriptor))
    except OSError:
        os.close(descriptor)
        raise
    return os.fdopen(descriptor, "rb")


@contextmanager
def open_directory(place: Place) -> Generator[int]:
    """A descriptor for listing. Raises OSError: ELOOP for a link, `NotADirectoryError`, …"""
    if not stat.S_ISDIR(status_at(place).st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
    descriptor = os.open(place.name, flags, dir_fd=place.directory)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def entry_kind(entry: os.DirEntry[str]) -> Kind:
    """To be asked while the directory is open: where the listing doesn't tell, the file system is asked."""
    if entry.is_symlink():
        return "link"
    if entry.is_dir(follow_symlinks=False):
        return "directory"
    return "file" if entry.is_file(follow_symlinks=False) else "other"


def _check(status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(status.st_mode):
        raise NotAFileError(errno.EINVAL, "a device, pipe or socket")
