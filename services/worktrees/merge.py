"""merge: merges a worktree into another work tree."""

import os
from collections.abc import Mapping
from pathlib import Path

from interlock.services.worktrees.listing import WorktreeEntry
from interlock.services.worktrees.repository import (
    GitRepository,
    find_commit,
    git_failure_text,
    join_file_names,
    read_git_list,
    read_git_text,
    run_git,
)
from interlock.state.errors import UserError
from interlock.state.file_names import quote_path


def commit_all(entry: WorktreeEntry, message: str, env: Mapping[str, str], *, hooks: bool) -> None:
    """Commit every change in a worktree. Raises `UserError`."""
    run_git(entry.path, "add", "--all", env=env)
    run_git(entry.path, "commit", "--quiet", "-m", message, env=env, hooks=hooks)


def merge_worktree(
    repository: GitRepository, entry: WorktreeEntry, env: Mapping[str, str], *, hooks: bool
) -> str:
    """Merge a worktree's commits into the branch that is checked out in `repository.top`; return a line about it.

    Raises `UserError`; then nothing has changed.
    """
    top = repository.top
    if top is None:
        raise UserError(
            f"{quote_path(repository.main)} is a bare repository. Merge in a work tree of it: -C DIR"
        )
    if top == Path(os.path.realpath(entry.path)):
        raise UserError(
            f"You are in the worktree {quote_path(top)} itself. Merge it from another work tree: -C {repository.main}"
        )
    before = find_commit(top, "HEAD", env)
    if not before:
        raise UserError(f"{quote_path(top)} has no commit yet. Commit something first: git commit")
    if find_commit(top, "MERGE_HEAD", env):
        raise UserError(
            f"A merge is under way in {quote_path(top)}. Finish it first: git commit, or git merge --abort"
        )
    what = entry.branch or entry.commit
    # A tag may have the same name.
    head = f"refs/heads/{entry.branch}" if entry.branch else entry.commit
    done = run_git(top, "merge", "--no-edit", head, env=env, hooks=hooks, check=False)
    if done.returncode:
        conflicts: list[str] = []
        if find_commit(top, "MERGE_HEAD", env):
            conflicts = read_git_list(
                top, "diff", "--name-only", "--diff-filter=U", "--ignore-submodules=dirty", "-z", env=env
            )
            run_git(top, "merge", "--abort", env=env)
        if conflicts:
            raise UserError(
                f"{what!r} and {quote_path(top)} have conflicts in {join_file_names(conflicts)}. Nothing was "
                f"changed. Merge by hand: git -C {quote_path(top)} merge {what}"
            )
        raise UserError(f"{what!r} wasn't merged: {git_failure_text(done)}")
    into = read_git_text(top, "rev-parse", "--abbrev-ref", "HEAD", env=env).strip()
    if find_commit(top, "HEAD", env) == before:
        return f"{into!r} already has all commits of {what!r}."
    return f"Merged {what!r} into {into!r} in {quote_path(top)}."
