"""survey: what in the workspace a sandboxed command may not change, and what it may not even see.

A command that may write to the workspace could otherwise give itself rights that outlast it and hold outside: in files
that git executes (hooks, and programs that its configuration names), that Interlock goes by (`protected_paths.py`), and
in folders of the PATH, where the next program of that name would be looked for. Those are read only; those that aren't
there yet can't be made. Private files are hidden, as the path rules keep them from all tools.

Not held: files that somebody runs because they are the project's (scripts, tests, build files), memory and CI files
that are links, what git keeps of a rebase under way, and what a command makes in a folder below: repositories, settings
folders, memory files.
"""

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from interlock.services.protected_paths import ProtectedPaths, folded, is_private, program_folders
from interlock.services.sandbox.mounts import Mounts
from interlock.services.sandbox.placeholders import is_placeholder
from interlock.services.sandbox.repository import Repository, linked_worktree, read_repository
from interlock.state.errors import SandboxError

_PRIVATE = (".env", ".git")
_NOT_SEARCHED = "node_modules"
"""Tens of thousands of folders of other people's packages."""


@dataclass
class Survey:
    """What stands over the writable roots, and what must be held while the command runs."""

    roots: Sequence[Path]
    mounts: Mounts = field(default_factory=Mounts)
    missing: dict[Path, bytes | None] = field(default_factory=dict[Path, bytes | None])

    def keep(self, path: Path) -> None:
        """Read only, and where it is."""
        self._pin_above(path)
        self.mounts.read_only(path)

    def never_new(self, path: Path, content: bytes | None = None) -> None:
        """Read only; if it isn't there, something empty holds the first part of `path` that is missing."""
        first = next((p for p in reversed((path, *path.parents)) if not os.path.lexists(p)), path)
        if first != path or not os.path.lexists(path) or is_placeholder(path, content):
            self.missing[first] = content if first == path else None
        self.keep(first)

    def _pin_above(self, path: Path) -> None:
        root = self.root_of(path)
        for parent in path.parents:
            if root is None or parent == root or root not in parent.parents:
                return
            self.mounts.pin(parent)

    def root_of(self, path: Path) -> Path | None:
        return max(
            (r for r in self.roots if path.is_relative_to(r)), key=lambda r: len(r.parts), default=None
        )


def survey(roots: Sequence[Path], env: Mapping[str, str], protected: ProtectedPaths) -> Survey:
    """Look through the roots: a walk over their folders. Raises `SandboxError` for a link that a command could turn."""
    found = Survey(roots)
    names = protected.names()
    for root in roots:
        found.mounts.writable(root)
    for root in roots:
        _walk(root, found, names)
        for name in _PRIVATE:
            _top(root / name, found)
        for name in protected.spelled():
            kind = names[folded(name)]
            if kind.new and (kind.trusted or not (root / name).is_symlink()):
                _top(root / name, found)
    for path in (*program_folders(env), *protected.places):
        if found.root_of(path) and path not in roots:
            found.never_new(path)
    return found


def _top(path: Path, found: Survey) -> None:
    if path.is_symlink():
        raise SandboxError(
            f"{str(path)!r} is a link, and a sandboxed command could turn it; expected a file or folder."
            " Put what it leads to in its place, or run without the sandbox."
        )
    if not os.path.lexists(path) or is_placeholder(path, None):
        found.never_new(path)
    elif path.name == ".git" and path.is_file() and (linked := linked_worktree(path)):
        found.mounts.writable(linked.common)
        _take(linked, found)


def _walk(root: Path, found: Survey, names: Collection[str]) -> None:
    pending = [str(root)]
    while pending:
        for entry in _entries(pending.pop()):
            name = folded(entry.name)
            is_dir = entry.is_dir(follow_symlinks=False)
            if name == ".git" and is_dir:
                _take(read_repository(Path(entry.path)), found)
            elif name in (*names, ".git") and not entry.is_symlink():
                found.keep(Path(entry.path))
            elif is_private(entry.name):
                _hide(Path(os.path.realpath(entry.path)), found)
            elif is_dir and name != _NOT_SEARCHED:
                pending.append(entry.path)


def _hide(real: Path, found: Survey) -> None:
    """Where a link leads outside, there is nothing to be seen anyway."""
    if found.root_of(real) and real.exists():
        found.mounts.hide(real)


def _take(repository: Repository, found: Survey) -> None:
    for path in repository.own:
        found.mounts.writable(path)
    found.mounts.pin(repository.common)
    for path in repository.kept:
        found.keep(path)
    for path, content in repository.never_new.items():
        if found.root_of(path) or path.is_relative_to(repository.common):
            found.never_new(path, content)


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return list(found)
    except OSError:  # gone meanwhile, or not ours to read: a command can't read it either
        return []
