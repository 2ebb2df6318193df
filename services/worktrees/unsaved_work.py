"""unsaved_work: finds what would be lost with a worktree."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from interlock.services.files.linked_worktree import read_linked_worktree
from interlock.services.worktrees.listing import WorktreeEntry, count_unmerged_commits
from interlock.services.worktrees.repository import GitRepository, join_file_names, list_changed_files
from interlock.services.worktrees.submodules import list_submodules_with_work
from interlock.services.worktrees.untracked_files import INCLUDE_FILE, has_same_content, list_included_files
from interlock.state.text import format_count

_UNFINISHED = (
    *("MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "BISECT_LOG", "rebase-merge", "rebase-apply"),
)
"""Files and folders of a git directory while a merge, rebase or bisection is under way."""


class WorktreeWork(NamedTuple):
    """What a worktree holds that would be lost with it."""

    changed: list[str]
    """Changed and untracked files, which git would commit."""
    changed_copies: list[str]
    """Copies of listed files that now differ from those in the main work tree."""
    commits: int
    """Commits that no other branch, tag or remote has, and that would go with the worktree or its branch."""
    unfinished: list[str]
    """What git has begun there: `an unfinished merge`."""
    submodules: list[str]
    """Submodules with commits that are only there."""

    @property
    def uncommitted(self) -> list[str]:
        return [*self.changed, *self.changed_copies]

    @property
    def lines(self) -> list[str]:
        """All of it, in a few words each."""
        lines: list[str] = []
        if self.uncommitted:
            lines.append(
                f"{format_count(len(self.uncommitted), 'uncommitted file')}: {join_file_names(self.uncommitted)}"
            )
        if self.commits:
            lines.append(f"{format_count(self.commits, 'commit')} not merged")
        if self.submodules:
            lines.append(f"commits of {join_file_names(self.submodules)} that no remote has")
        return [*lines, *self.unfinished]


def find_unsaved_work(
    repository: GitRepository,
    entry: WorktreeEntry,
    include: Sequence[str],
    env: Mapping[str, str],
    *,
    is_trusted: bool,
) -> WorktreeWork:
    """Return what would be lost with a worktree, and with its branch if Interlock named that.

    Only in a trusted repository does git look into submodules: each has settings that can name programs.
    """
    commits = count_unmerged_commits(repository, entry, env)
    if (
        entry.missing
        or entry.is_incomplete
        or not (linked := read_linked_worktree(Path(os.path.realpath(entry.path))))
    ):
        return WorktreeWork([], [], commits, [], [])
    changed = list_changed_files(entry.path, env, submodules=is_trusted)
    source = repository.main if (repository.main / ".git").exists() else None
    copies = list_included_files(entry.path, include, source / INCLUDE_FILE, env) if source else []
    changed_copies = [
        name
        for name in copies
        if source and name not in changed and not has_same_content(source / name, entry.path / name)
    ]
    unfinished = [
        f"an unfinished {name.lower().removesuffix('_head').removesuffix('_log').replace('_', ' ')}"
        for name in _UNFINISHED
        if os.path.lexists(linked.own / name)
    ]
    submodules = list_submodules_with_work(source, entry.path, env) if is_trusted else ()
    return WorktreeWork(changed, changed_copies, commits, unfinished, [*submodules])
