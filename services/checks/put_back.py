"""put_back: files as they were, put into a view; nothing outside of it is touched, wherever its links lead.

Imports nothing of the house: the program that enters a view runs it without the house's packages.
"""

import os
import shutil
import stat
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW


class File(NamedTuple):
    """A file as it was."""

    path: str
    """Relative to the view's root."""
    mode: int
    """Type and permissions; 0: it wasn't there."""
    data: str
    """The file that holds its bytes, or a link's target."""


def put_back(root: str, files: Iterable[File]) -> None:
    """Put files into a view. Raises `OSError`."""
    for file in files:
        *folders, name = file.path.split("/")
        with _Folder(root, folders, make=bool(file.mode)) as folder:
            if folder is not None:
                _put(folder, name, file)


class _Folder:
    """A folder of the view, entered without following links: what isn't a folder on the way is replaced by one."""

    def __init__(self, root: str, names: list[str], *, make: bool) -> None:
        self._root, self._names, self._make = root, names, make

    def __enter__(self) -> int | None:
        self._held: int | None = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY)
        for name in self._names:
            outer = self._held
            self._held = self._enter(outer, name)
            os.close(outer)
            if self._held is None:
                return None
        return self._held

    def __exit__(self, *_: object) -> None:
        if self._held is not None:
            os.close(self._held)

    def _enter(self, folder: int, name: str) -> int | None:
        try:
            return os.open(name, _FOLDER, dir_fd=folder)
        except FileNotFoundError:
            if not self._make:
                return None
        except OSError:  # a link or a file
            if not self._make:
                return None
            os.unlink(name, dir_fd=folder)
        os.mkdir(name, 0o755, dir_fd=folder)
        return os.open(name, _FOLDER, dir_fd=folder)


def _put(folder: int, name: str, file: File) -> None:
    _remove(folder, name)
    if name.endswith(".py"):
        _forget_compiled(folder, name.removesuffix(".py"))
    if not file.mode:
        return
    with open(file.data, "rb") as source:  # noqa: PTH123 - a path of the program's own
        if stat.S_ISLNK(file.mode):
            os.symlink(source.read(), name, dir_fd=folder)
            return
        # Made now, so that nothing that was built from today's file counts as newer.
        with os.fdopen(os.open(name, _NEW, 0o600, dir_fd=folder), "wb") as made:
            shutil.copyfileobj(source, made)
            os.fchmod(made.fileno(), stat.S_IMODE(file.mode))


def _remove(folder: int, name: str) -> None:
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        pass
    except (IsADirectoryError, PermissionError):
        shutil.rmtree(name, dir_fd=folder)


def _forget_compiled(folder: int, stem: str) -> None:
    """Remove what Python compiled of today's file: it compares whole seconds and sizes only."""
    with suppress(OSError):
        cache = os.open("__pycache__", _FOLDER, dir_fd=folder)
        try:
            for name in os.listdir(cache):  # noqa: PTH208 - by descriptor
                if name.startswith(f"{stem}."):
                    os.unlink(name, dir_fd=cache)
        finally:
            os.close(cache)
