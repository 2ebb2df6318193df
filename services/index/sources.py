"""sources: the files of a workspace that can be searched: found, told apart, and cut into chunks."""

import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from interlock.services.files.filesystem import sha256
from interlock.services.index.chunks import Chunk, chunks
from interlock.services.index.words import columns
from interlock.state.tooling import PathRefused, Workspace
from interlock.tools._opening import open_file
from interlock.tools._syntax import language_of

LARGEST = 1 << 20
"""Bytes of a file (Roo Code: 1 MiB)."""
_MADE = frozenset(
    {
        *("node_modules", "__pycache__", "env", "venv", "target", "dist", "out", "bundle"),
        *("vendor", "tmp", "temp", "deps", "pods"),
    }
)
"""Folders of what is made or fetched (Roo Code's list, but for `pkg`, where Go keeps its own code)."""
_SETTLED_NS = 2_000_000_000
"""A file that changed just before it was looked at may change again without another time stamp."""


class Source(NamedTuple):
    """A file as it was found; the path is relative to the workspace."""

    path: str
    language: str
    signature: str
    """Size, times and inode: while it is the same, so are the bytes. Empty: that can't be relied upon."""


class Indexed(NamedTuple):
    """A file as it goes into the index: its chunks, each with its words and, later, its vector."""

    source: Source
    sha256: str
    chunks: list[Chunk]
    words: list[tuple[str, str, str, str]]
    """`columns` of each chunk."""
    vectors: list[bytes]


def sources(workspace: Workspace, stop: Callable[[], None]) -> Iterator[Source]:
    """Sorted by path. Hidden ones, those that tools may not see, and what isn't source text don't count."""
    for path in workspace.walk(workspace.root, stop=stop, leave_out=_left_out):
        language = language_of(path)
        if language is not None and (found := _signature(path)) is not None:
            yield Source(path.relative_to(workspace.root).as_posix(), language, found)


def _left_out(name: str) -> bool:
    return name.startswith(".") or name.lower() in _MADE


def _signature(path: Path) -> str | None:
    try:
        found = path.lstat()
        str(path).encode()
    except (OSError, UnicodeEncodeError):  # gone meanwhile, or a name that isn't text
        return None
    if not stat.S_ISREG(found.st_mode) or found.st_size > LARGEST:
        return None
    if time.time_ns() - max(found.st_mtime_ns, found.st_ctime_ns) < _SETTLED_NS:
        return ""
    return f"{found.st_size}.{found.st_mtime_ns}.{found.st_ctime_ns}.{found.st_ino}"


def read(workspace: Workspace, path: str) -> bytes | None:
    """The bytes of a file, up to the largest; None: it is gone, or not for us."""
    try:
        with workspace.place(workspace.root / path) as place, open_file(place) as file:
            data = file.read(LARGEST + 1)
    except (OSError, PathRefused):
        return None
    return data if len(data) <= LARGEST else None


def indexed(source: Source, data: bytes) -> Indexed:
    """Binary files, and those that can't be read, have no chunks; they are remembered, and not read again."""
    found = [] if b"\0" in data else chunks(data, source.language)
    words = [columns(source.path, chunk.name, chunk.text) for chunk in found]
    return Indexed(source, sha256(data), found, words, [])
