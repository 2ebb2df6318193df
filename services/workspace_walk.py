"""workspace_walk: the files below a directory, opened level by level, so that no link leads the walk out."""

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from interlock.services.ignore import IgnoreRules, Layer, entry_ignored
from interlock.services.protected_paths import folded, is_private
from interlock.tools._places import Kind, entry_kind

DEPENDENCIES = "node_modules"
"""Readable, never writable; left out of listings like what git ignores."""


class Entry(NamedTuple):
    name: str
    kind: Kind


def files_below(
    start: str,
    rules: IgnoreRules,
    entries: Callable[[str], Sequence[Entry]],
    own_link: Callable[[str], bool],
    *,
    git: bool,
) -> Iterator[Path]:
    """Sorted as `entries` are; links only where `own_link` says so. With `git` false also what git ignores."""
    agent = rules.agent_layers()
    pending: list[tuple[str, Entry, list[Layer]]] = []

    def open_directory(path: str, layers: list[Layer]) -> None:
        found = entries(path)
        if git and path != start and any(e.name == ".gitignore" for e in found):
            layers = rules.deeper(layers, path)
        base = path.removesuffix("/")
        pending.extend((f"{base}/{entry.name}", entry, layers) for entry in reversed(found))

    open_directory(start, rules.git_layers(start) if git else [])
    while pending:
        path, entry, layers = pending.pop()
        if is_private(entry.name) or (git and folded(entry.name) == DEPENDENCIES):
            continue
        is_dir = entry.kind == "directory"
        if entry_ignored(layers, agent, path, is_dir):
            continue
        if is_dir:
            open_directory(path, layers)
        elif entry.kind == "file" or (entry.kind == "link" and own_link(path)):
            yield Path(path)


def entries_of(directory: int) -> list[Entry]:
    """By name."""
    with os.scandir(directory) as found:
        return sorted(Entry(entry.name, entry_kind(entry)) for entry in found)
