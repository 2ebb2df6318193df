"""stamps: whether what was read from files still stands there: of each file its stamp, of each folder that was listed.

While stamps are noted, what reads and looks for files here and in `disk` notes each path before it looks at it, there
or not. A file system's clock moves in ticks: what was changed less than a tick before it was read could change again
without a new time, so such a stamp is taken for another's.
"""

import os
import time
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from stat import S_ISDIR

TICK_NS = 2_000_000_000
"""The longest tick of a file system that people work in (FAT; others: some milliseconds)."""
Stamp = tuple[object, ...]


class Stamps:
    """The stamps of what is read in `noted`."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, bool], Stamp] = {}

    @contextmanager
    def noted(self) -> Generator[None]:
        """Note what is read inside the block."""
        before = _STAMPS.set(self)
        try:
            yield
        finally:
            _STAMPS.reset(before)

    def note(self, path: str, listed: bool) -> None:
        if (path, listed) not in self._found:
            self._found[path, listed] = _stamp(path, listed, time.time_ns() - TICK_NS)

    def are_current(self) -> bool:
        """Return whether all that was read, looked for in vain or listed is as it was then."""
        return all(_stamp(*key) == stamp for key, stamp in [*self._found.items()])


_STAMPS: ContextVar[Stamps | None] = ContextVar("stamps", default=None)


def _stamp(path: str, listed: bool, settled_ns: float = float("inf")) -> Stamp:
    """Return where a path leads and what identifies what is there; of a folder its entries count only if `listed`.

    `settled_ns`: what changed after this time gets a stamp that equals no other.
    """
    real = ""
    try:
        real = os.path.realpath(path)
        found = os.stat(real)  # noqa: PTH116 - each drive looks at dozens
    except (OSError, ValueError) as error:
        return (real, getattr(error, "errno", None))
    what = (real, found.st_dev, found.st_ino, found.st_mode, found.st_uid)
    if S_ISDIR(found.st_mode) and not listed:
        return what
    changed = object() if found.st_ctime_ns > settled_ns else found.st_ctime_ns
    return (*what, found.st_size, found.st_mtime_ns, changed)


def note(path: str | Path, *, listed: bool = False) -> None:
    """Note that a file is about to be read or looked for, or a folder `listed`. Call it first."""
    if (stamps := _STAMPS.get()) is not None:
        stamps.note(str(path), listed)


def lies_there(path: Path) -> bool:
    """Return whether a file, folder or link has this name."""
    note(path)
    return os.path.lexists(path)


def real_path(path: str | Path) -> Path:
    """Return where a path leads."""
    note(path)
    return Path(os.path.realpath(path))


def files_like(folder: Path, pattern: str) -> list[Path]:
    """Return the paths below a folder that match a pattern with one folder of `*` or `**`, sorted."""
    above, _, below = pattern.partition("*")
    top = folder / above.rpartition("/")[0]
    note(top, listed=True)
    if _STAMPS.get() is not None and below.startswith("*"):
        for name, _, _ in os.walk(top):
            note(name, listed=True)
    elif _STAMPS.get() is not None and "/" in below:
        for one in top.glob("*"):
            note(one / below.partition("/")[2])
    return sorted(folder.glob(pattern))
