"""memory: the files that hold instructions for the model: the user's own, then the project's."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from interlock.services.memory_imports import Imports
from interlock.services.settings import FOLDERS
from interlock.services.textfile import UnreadableError, is_file

FILE_LIMIT = 64 * 1024
"""Bytes of one memory file with its imports (about 16,000 tokens)."""
TOTAL_LIMIT = 256 * 1024
"""Bytes of all memory files."""


@dataclass(frozen=True)
class MemoryFile:
    """One file, imports included; `text` says so in an HTML comment if it could not be read."""

    path: Path
    level: Literal["global", "project"]
    text: str


def load_memory(*, roots: Sequence[Path], home: Path, names: Sequence[str]) -> list[MemoryFile]:
    """Global files, then each root's from its git root down, so that the nearest comes last; each real file once."""
    seen: set[Path] = set()
    found: list[MemoryFile] = []
    left = TOTAL_LIMIT
    for path, top, level in _candidates(roots, home, names):
        real = Path(os.path.realpath(path))
        if real in seen or not is_file(real):
            continue
        seen.add(real)
        # What a person links into their own folder is theirs; a project's link must not lead out of it.
        allowed = (top, real.parent) if level == "global" else (top,)
        text = _text(path, Imports(allowed, min(FILE_LIMIT, left)))
        left -= len(text.encode())
        if text:
            found.append(MemoryFile(path, level, text))
    return found


def git_root(directory: Path) -> Path | None:
    """The nearest directory, upward from and including this one, that holds `.git` (a directory or a file)."""
    return next((d for d in (directory, *directory.parents) if os.path.lexists(d / ".git")), None)


def _candidates(
    roots: Sequence[Path], home: Path, names: Sequence[str]
) -> Iterator[tuple[Path, Path, Literal["global", "project"]]]:
    for folder in FOLDERS:
        for name in names:
            yield home / folder / name, Path(os.path.realpath(home / folder)), "global"
    for root in roots:
        top = git_root(root) or root
        way = [d for d in (root, *root.parents) if d.is_relative_to(top)]
        for directory in reversed(way):
            for name in names:
                yield directory / name, Path(os.path.realpath(top)), "project"


def _text(path: Path, imports: Imports) -> str:
    if imports.left <= 0:
        return f"<!-- not read: the memory files before it hold {TOTAL_LIMIT:,} bytes already -->"
    try:
        return imports.text(path).strip()
    except UnreadableError as error:
        return f"<!-- not read: {error} -->"
