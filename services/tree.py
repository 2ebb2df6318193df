"""tree: a directory as a short listing, broad before deep."""

import os
from collections import deque
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from time import monotonic

ENTRIES = 200
"""Lines of a listing (gemini-cli: 200)."""
_BELOW = 30
"""Lines of one directory below the root, so that a folder full of files doesn't use up the listing."""
_SCANNED, _SCANNED_IN_ALL = 5_000, 10_000
"""Entries that are looked at in one directory (of more, an arbitrary choice is shown) and in all: 0.1 s."""
_SECONDS = 2.0
"""After this time the rest stays closed: a slow file system must not hold up the first request."""
_HIDDEN = frozenset({".git"})
_CLOSED = frozenset({"node_modules", "__pycache__", ".venv", "venv", ".tox", "target", "dist"})
"""Named, but not opened, wherever no ignore file speaks of them."""


IgnoredIn = Callable[[Path], Callable[[str, bool], bool]]
"""As `Workspace.ignored_in`."""


def tree(root: Path, ignored_in: IgnoredIn, limit: int = ENTRIES) -> str:
    """Names below `root`, indented; links aren't followed, `…` marks what isn't shown."""
    end = monotonic() + _SECONDS
    shown: dict[Path, list[os.DirEntry[str]]] = {}
    omitted: dict[Path, int] = {}
    queue = deque([root])
    left = _SCANNED_IN_ALL
    while queue and limit > 0 and left > 0 and monotonic() < end:
        directory = queue.popleft()
        found = _entries(directory, min(left, _SCANNED))
        left -= len(found)
        ignored = ignored_in(directory)
        entries = [e for e in found if e.name not in _HIDDEN and not ignored(e.name, _leads_to_directory(e))]
        shown[directory] = entries[: limit if directory == root else min(limit, _BELOW)]
        omitted[directory] = len(entries) - len(shown[directory])
        limit -= len(shown[directory])
        queue.extend(Path(e.path) for e in shown[directory] if _is_directory(e) and e.name not in _CLOSED)
    return "\n".join(_lines(root, shown, omitted, "")) or "(empty)"


def _entries(directory: Path, most: int) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as found:
            entries = list(islice(found, most))
    except OSError:
        return []
    return sorted(entries, key=lambda e: (not _is_directory(e), e.name))


def _leads_to_directory(entry: os.DirEntry[str]) -> bool:
    """Links are followed: patterns for directories mean them, too."""
    try:
        return entry.is_dir()
    except OSError:
        return False


def _is_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False


def _lines(
    directory: Path, shown: dict[Path, list[os.DirEntry[str]]], omitted: dict[Path, int], indent: str
) -> list[str]:
    lines: list[str] = []
    for entry in shown.get(directory, []):
        path, name = Path(entry.path), _printable(entry.name)
        if not _is_directory(entry):
            lines.append(indent + name)
        elif path in shown:
            lines.append(f"{indent}{name}/")
            lines += _lines(path, shown, omitted, indent + "  ")
        else:
            lines.append(f"{indent}{name}/ …")
    if omitted.get(directory):
        lines.append(f"{indent}… {omitted[directory]} more")
    return lines


def _printable(name: str) -> str:
    """A name on one line: control characters can't make it look like something else."""
    return name if name.isprintable() else ascii(name)
