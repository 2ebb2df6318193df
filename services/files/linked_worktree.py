"""linked_worktree: which repository a linked git worktree belongs to, where both sides say so.

The `.git` file of a worktree names a directory of its repository, and a file in that directory names the worktree. Git
keeps `.git` out of what it checks out, so no content of a repository can write either of them.
"""

import os
from pathlib import Path
from typing import NamedTuple

from interlock.services.files.disk import read_file
from interlock.services.files.stamps import path_exists, record_read

_LARGEST = 20_000


class LinkedWorktree(NamedTuple):
    """A work tree beside the main one of its repository. Real paths."""

    top: Path
    """The folder with the `.git` file."""
    own: Path
    """Its own git directory, in `worktrees/` of the shared one."""
    common: Path
    """The git directory that it shares with the main work tree."""


def find_linked_worktree(folder: Path) -> LinkedWorktree | None:
    """Return the linked worktree in which a folder lies; None: it lies in none that its repository confirms."""
    real = Path(os.path.realpath(folder))
    top = next((place for place in (real, *real.parents) if path_exists(place / ".git")), None)
    return top and read_linked_worktree(top)


def read_linked_worktree(top: Path) -> LinkedWorktree | None:
    """Return the linked worktree whose `.git` file lies in `top`, a real path; None: its repository names no such."""
    git_file = top / ".git"
    if git_file.is_symlink() or not git_file.is_file():
        return None
    try:
        own = _resolve_pointer(top, _read_line(git_file).removeprefix("gitdir:").strip())
        common = _resolve_pointer(own, _read_line(own / "commondir"))
        back = _resolve_pointer(own, _read_line(own / "gitdir"))
    except (OSError, ValueError):
        return None
    confirmed = back == git_file and own.parent == common / "worktrees" and (common / "objects").is_dir()
    return LinkedWorktree(top, own, common) if confirmed and not _is_content(common) else None


def _is_content(common: Path) -> bool:
    """Return whether the files of a repository may hold this git directory: a bare one inside of a work tree."""
    if ".git" in common.parts:
        return False
    around = next((place / ".git" for place in common.parents if path_exists(place / ".git")), None)
    if around is None:
        return False
    try:
        named = (
            around
            if around.is_dir()
            else _resolve_pointer(around.parent, _read_line(around)[len("gitdir:") :])
        )
    except (OSError, ValueError):
        return True
    return Path(os.path.realpath(named)) != common


def _read_line(file: Path) -> str:
    record_read(file)
    return read_file(file, _LARGEST).decode("utf-8", "surrogateescape").strip()


def _resolve_pointer(base: Path, name: str) -> Path:
    return Path(os.path.realpath(base / name.strip()))
