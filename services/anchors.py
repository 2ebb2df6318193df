"""anchors: directories that are held open, by which everything below them is reached, whatever is renamed meanwhile."""

import contextlib
import errno
import os
import stat
import weakref
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from interlock.services.files import make_directories, sync_directory
from interlock.state.tooling import Place

_SEARCH = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW
"""To a directory on the way. Linux asks no permission to read it."""

_LONGEST = 4096
"""Bytes of a path, its end included, that the system takes (Linux)."""


class Anchor:
    """A directory by its real path, held from the first moment on that it is there."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._held: int | None = None
        with contextlib.suppress(OSError):  # not there yet, or closed to us: who uses it is told
            self._hold()

    @contextmanager
    def place(self, path: Path, *, make: bool = False) -> Generator[Place]:
        """As `Workspace.place`, for a path that is below the directory or the directory itself."""
        parts = path.relative_to(self.path).parts
        if ".." in parts:
            raise OSError(errno.EXDEV, "leads outside")
        if len(os.fsencode(path)) >= _LONGEST:  # step by step it could be made, and then nobody could name it
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
        if make and self._held is None:
            make_directories(self.path)
        directory = os.open(".", _SEARCH, dir_fd=self._same())
        try:
            for name in parts[:-1]:
                deeper = _enter(directory, name, make)
                os.close(directory)
                directory = deeper
            yield Place(directory, parts[-1] if parts else ".")
        finally:
            os.close(directory)

    def _hold(self) -> int:
        if self._held is None:
            self._held = os.open(self.path, _SEARCH)
            weakref.finalize(self, os.close, self._held)
        return self._held

    def _same(self) -> int:
        """Its descriptor, while it is still what stands at the path: what is written must be found there."""
        held = self._hold()
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            if os.path.samestat(self.path.lstat(), os.fstat(held)):
                return held
        raise OSError(
            errno.ESTALE, f"the directory {str(self.path)!r} was replaced since the run began; resume the run"
        )


def _enter(directory: int, name: str, make: bool) -> int:
    try:
        return os.open(name, _SEARCH, dir_fd=directory)
    except FileNotFoundError:
        if not make:
            raise
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, dir_fd=directory)
        sync_directory(directory)
        return os.open(name, _SEARCH, dir_fd=directory)
    except NotADirectoryError:
        if stat.S_ISLNK(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
            raise OSError(errno.ELOOP, "a link was put on the way to it meanwhile") from None
        raise
