"""untracked_files: copies untracked files that a person listed to a worktree, and compares them later."""

import errno
import filecmp
import os
import shutil
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path

from interlock.services.files.linked_worktree import read_linked_worktree
from interlock.services.worktrees.repository import join_file_names, read_git_list
from interlock.state.text import format_count

INCLUDE_FILE = ".worktreeinclude"
"""Patterns of untracked files that a new worktree gets, as in Claude Code, Codex and others."""


def list_included_files(
    top: Path, patterns: Sequence[str], include_file: Path | None, env: Mapping[str, str]
) -> list[str]:
    """Return the untracked files, ignored or not, that the patterns match, relative to `top`."""
    chosen = [f"--exclude={pattern}" for pattern in patterns]
    if include_file and include_file.is_file():
        chosen.append(f"--exclude-from={include_file}")
    if not chosen:
        return []
    return read_git_list(top, "ls-files", "--others", "--ignored", "-z", *chosen, env=env)


def copy_listed_files(
    source: Path, target: Path, patterns: Sequence[str], include_file: Path | None, env: Mapping[str, str]
) -> list[str]:
    """Copy the listed files that `target` lacks; return a line for those copied and one for those that can't be."""
    linked = read_linked_worktree(target)
    staged = (linked.own if linked else target.parent) / f"interlock-{os.getpid()}.part"
    copied: list[str] = []
    skipped: list[str] = []
    for name in list_included_files(source, patterns, include_file, env):
        if Path(source, name) == target or target.is_relative_to(source / name):
            continue
        try:
            if _copy_file_if_absent(source / name, target / name, target, staged):
                copied.append(name)
        except OSError as error:
            skipped.append(f"{name} ({error.strerror})")
    lines = (
        [f"Copied {format_count(len(copied), 'untracked file')}: {join_file_names(copied)}."]
        if copied
        else []
    )
    return [*lines, *([f"Not copied: {join_file_names(skipped)}."] if skipped else [])]


def _copy_file_if_absent(source: Path, target: Path, top: Path, staged: Path) -> bool:
    """Copy a file or link, not through links that lead out of `top`. Raises `OSError`.

    `staged`: where it is written first, outside of the work tree, so that a kill leaves no half file.
    """
    kind = source.lstat().st_mode
    if not (stat.S_ISREG(kind) or stat.S_ISLNK(kind)):
        raise OSError(0, "a repository of its own" if stat.S_ISDIR(kind) else "no regular file")
    if os.path.lexists(target):
        return False
    if not Path(os.path.realpath(target.parent)).is_relative_to(top):
        raise OSError(0, "a link there leads elsewhere")
    target.parent.mkdir(parents=True, exist_ok=True)
    staged.unlink(missing_ok=True)
    shutil.copy2(source, staged, follow_symlinks=False)
    try:
        staged.rename(target)
    except OSError as error:
        if error.errno != errno.EXDEV:  # the git directory lies on another file system
            raise
        shutil.copy2(staged, target, follow_symlinks=False)
    finally:
        staged.unlink(missing_ok=True)
    return True


def has_same_content(one: Path, other: Path) -> bool:
    """Return whether both are links to the same place, or files with the same bytes."""
    try:
        if one.is_symlink() or other.is_symlink():
            return one.readlink() == other.readlink()
        return filecmp.cmp(one, other, shallow=False)
    except OSError:
        return False
