"""repositories: which repositories git reads without running anything, and without showing what tools may not read."""

import os
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from interlock.services.files.git_config import is_plain_config
from interlock.services.files.regular import read_file

_LARGEST = 20_000
_LARGEST_INDEX = 50_000_000
_PRIVATE = re.compile(rb"[/\x00-\x1f](\.env|\.netrc|\.git-credentials|id_(rsa|dsa|ecdsa|ed25519))\x00")
"""Such a path in an index: behind a slash, or behind its own length."""
_SUBMODULE = b"\x00\x00\xe0\x00"
"""Mode of index entries that are repositories of their own, which `git status` enters."""


def runs_nothing(folder: Path) -> bool:
    """Whether the repository git finds from `folder` has no settings, hooks or submodules that run programs.

    Bare repositories aren't found (tools set `safe.bareRepository=explicit`); the user's configuration is trusted.
    """
    # All of them: git passes over a `.git` that is no repository.
    return all(map(_is_plain, _repositories(folder)))


def shows_nothing_private(folder: Path, texts: bool, compared: int) -> bool:
    """Whether git tracks no file that tools may not read, if it shows `texts`. Outside of a repository it compares any
    two folders, whatever they hold."""
    found = [own for git in _repositories(folder) for own, _ in _directories(git) if (own / "HEAD").is_file()]
    if not found:
        return compared < 2
    return not texts or not any(_tracks_private(str(own), _state(own / "index")) for own in found)


def _repositories(folder: Path) -> Iterator[Path]:
    """Yield everything that git may take for the repository of a folder."""
    real = folder.resolve()  # git climbs from where a link leads
    places = (place / ".git" for place in (real, *real.parents))
    return (git for git in places if os.path.lexists(git))


@lru_cache(maxsize=8)
def _tracks_private(git: str, index: tuple[int, int, int]) -> bool:
    return bool(index[2]) and _PRIVATE.search(read_file(Path(git, "index"), index[2])) is not None


def _directories(git: Path) -> list[tuple[Path, Path]]:
    """The directory of a work tree and the one with its settings: the same, unless `git worktree` has linked it.

    Empty if `git` is something else, like a submodule's.
    """
    if git.is_dir():
        return [] if (git / "commondir").exists() else [(git, git)]
    try:
        own = (git.parent / _line(git).removeprefix("gitdir: ")).resolve()
        linked = own.parent.name == "worktrees" and _line(own / "commondir") == "../.."
        return [(own, own.parent.parent)] if linked and Path(_line(own / "gitdir")).samefile(git) else []
    except (OSError, ValueError):
        return []


def _line(file: Path) -> str:
    return read_file(file, _LARGEST).decode().removesuffix("\n")


def _is_plain(git: Path) -> bool:
    for own, common in _directories(git):
        if (own / "config.worktree").exists() or (common / "hooks/post-index-change").exists():
            return False
        if any(own.glob("sharedindex.*")):  # it holds further entries
            return False
        try:
            return _are_plain(str(own), str(common), _state(common / "config"), _state(own / "index"))
        except (OSError, ValueError):
            return False
    return False


def _state(file: Path) -> tuple[int, int, int]:
    """Return a value that differs once the file has changed."""
    try:
        status = file.stat()
    except FileNotFoundError:
        return (0, 0, 0)
    return (status.st_mtime_ns, status.st_ctime_ns, status.st_size)


@lru_cache(maxsize=8)
def _are_plain(own: str, common: str, config: tuple[int, int, int], index: tuple[int, int, int]) -> bool:
    if config[2] > _LARGEST or index[2] > _LARGEST_INDEX:
        return False
    entries = read_file(Path(own, "index"), _LARGEST_INDEX) if index[2] else b""
    text = read_file(Path(common, "config")).decode() if config[2] else ""
    return _SUBMODULE not in entries and is_plain_config(text)
