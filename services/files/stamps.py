"""stamps: whether what was read from files still stands there: of each file its stamp, of each folder that was listed.

While stamps are noted, what reads and looks for files here and in `disk` notes each path before it looks at it, there
or not. A file system's clock moves in ticks: what was changed less than a tick before it was read could change again
without a new time, so such a stamp equals no other.
"""

import fnmatch
import os
import time
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from stat import S_ISDIR
from typing import Literal

TICK_NS = 2_000_000_000
"""The longest tick of a file system that people work in (FAT; others: some milliseconds)."""
Stamp = tuple[object, ...]
ReadAspect = Literal["content", "entries", "matches", "target"]
"""What counts of a path: what a file holds (of a folder, that it is there), what a folder lists, which names in a
folder the path's last part matches as a pattern, where it leads."""


class Stamps:
    """The stamps of what is read inside `capture_reads`."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, ReadAspect], Stamp] = {}

    @contextmanager
    def capture_reads(self) -> Generator[None]:
        """Note what is read inside the block."""
        before = _STAMPS.set(self)
        try:
            yield
        finally:
            _STAMPS.reset(before)

    def add_stamp(self, path: str, aspect: ReadAspect) -> None:
        if (path, aspect) not in self._found:
            self._found[path, aspect] = _read_stamp(path, aspect, time.time_ns() - TICK_NS)

    def are_current(self) -> bool:
        """Return whether all that was read, looked for in vain or listed is as it was then."""
        return all(_read_stamp(*key) == stamp for key, stamp in [*self._found.items()])


_STAMPS: ContextVar[Stamps | None] = ContextVar("stamps", default=None)


def _read_stamp(path: str, aspect: ReadAspect, stable_before_ns: float = float("inf")) -> Stamp:
    """Return what identifies the file or folder that a path leads to, or where it leads.

    `stable_before_ns`: what changed after this time gets a stamp that equals no other.
    """
    try:
        if aspect == "target":
            return (os.path.realpath(path),)
        if aspect == "matches":
            folder, pattern = os.path.split(path)
            return tuple(sorted(fnmatch.filter(os.listdir(folder), pattern)))  # noqa: PTH208 - as below
        found = os.stat(path)  # noqa: PTH116 - each drive looks at dozens
    except (OSError, ValueError) as error:
        return (getattr(error, "errno", None),)
    what = (found.st_dev, found.st_ino, found.st_mode, found.st_uid)
    if S_ISDIR(found.st_mode) and aspect == "content":
        return what
    changed = object() if found.st_ctime_ns > stable_before_ns else found.st_ctime_ns
    return (*what, found.st_size, found.st_mtime_ns, changed)


def read_folder_stamp(folder: str) -> Stamp:
    """Return what differs once an entry of a folder is new or gone; equal to no other if that can't be known yet."""
    return _read_stamp(folder, "entries", time.time_ns() - TICK_NS)


def record_read(path: str | Path, aspect: ReadAspect = "content") -> None:
    """Note that a path is about to be looked at. Call it first: what changes in between is seen then."""
    if (stamps := _STAMPS.get()) is not None:
        stamps.add_stamp(str(path), aspect)


def path_exists(path: Path) -> bool:
    """Return whether a file, folder or link has this name."""
    record_read(path)
    return os.path.lexists(path)


def real_path(path: str | Path) -> Path:
    """Return where a path leads."""
    record_read(path, "target")
    return Path(os.path.realpath(path))


def glob_paths(folder: Path, pattern: str) -> list[Path]:
    """Return the paths below a folder that match a pattern with one folder of `*` or `**`, sorted."""
    above, _, below = pattern.partition("*")
    top = folder / above.rpartition("/")[0]
    record_read(top, "entries")
    if _STAMPS.get() is not None and below.startswith("*"):
        for name, _, _ in os.walk(top):
            record_read(name, "entries")
    elif _STAMPS.get() is not None and "/" in below:
        for one in top.glob("*"):
            record_read(one / below.partition("/")[2])
    return sorted(folder.glob(pattern))
