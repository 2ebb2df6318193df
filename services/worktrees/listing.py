"""listing: the linked worktrees of a repository, whoever made them."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from interlock.services.worktrees.repository import SHOWN, GitRepository, read_git_text, run_git
from interlock.state.errors import UserError
from interlock.state.file_names import quote_path
from interlock.state.text import join_up_to

BRANCH_PREFIX = "worktree-"
"""Branches of worktrees begin so in Claude Code and gemini-cli, too."""


class WorktreeEntry(NamedTuple):
    """A linked worktree, as git lists it."""

    path: Path
    branch: str
    """Empty: a detached HEAD."""
    commit: str
    missing: bool = False
    locked: str | None = None
    """Why it is locked; None: it isn't."""

    @property
    def name(self) -> str:
        return self.branch.removeprefix(BRANCH_PREFIX) if self.is_own_branch else self.path.name

    @property
    def is_own_branch(self) -> bool:
        """Whether its branch has a name as Interlock gives it."""
        return self.branch.startswith(BRANCH_PREFIX)

    @property
    def is_incomplete(self) -> bool:
        """Whether git was killed while it made the worktree."""
        return self.locked == "initializing"


def list_linked_worktrees(repository: GitRepository, env: Mapping[str, str]) -> list[WorktreeEntry]:
    """Return the linked worktrees of a repository, whoever made them; not the main one."""
    text = read_git_text(repository.git_folder, "worktree", "list", "--porcelain", env=env)
    found: list[WorktreeEntry] = []
    for block in text.split("\n\n")[1:]:
        lines = [line.partition(" ") for line in block.split("\n") if line]
        about = {key: value for key, _, value in lines}
        if "worktree" not in about:
            continue
        found.append(
            WorktreeEntry(
                Path(about["worktree"]),
                about.get("branch", "").removeprefix("refs/heads/"),
                about.get("HEAD", ""),
                missing="prunable" in about or not os.path.lexists(Path(about["worktree"], ".git")),
                locked=about.get("locked"),
            )
        )
    return found


def list_branches_without_worktree(repository: GitRepository, env: Mapping[str, str]) -> dict[str, int]:
    """Return the branches for worktrees that no worktree has, each with the number of its unmerged commits.

    Somebody removed the worktree by hand, or a kill came before git made it.
    """
    taken = {entry.branch for entry in list_linked_worktrees(repository, env)}
    current = run_git(repository.main, "symbolic-ref", "--quiet", "HEAD", env=env, check=False)
    taken.add(os.fsdecode(current.stdout).strip().removeprefix("refs/heads/"))
    patterns = (f"refs/heads/{BRANCH_PREFIX}*", f"refs/heads/{BRANCH_PREFIX}*/**")
    listed = ("for-each-ref", "--format=%(refname:lstrip=2) %(objectname)", *patterns)
    heads = dict(
        line.split(" ") for line in read_git_text(repository.git_folder, *listed, env=env).splitlines()
    )
    return {
        branch: count_unmerged_commits(repository, WorktreeEntry(repository.main, branch, commit), env)
        for branch, commit in heads.items()
        if branch not in taken
    }


def find_worktree(repository: GitRepository, name: str, env: Mapping[str, str]) -> WorktreeEntry:
    """Return the linked worktree of a name, branch or path. Raises `UserError` that names those there are."""
    entries = list_linked_worktrees(repository, env)
    path = Path(os.path.realpath(os.path.expanduser(name)))  # noqa: PTH111 - `~nobody` is a name, too
    for matches in (
        [e for e in entries if name in (e.name, e.branch)],
        [e for e in entries if e.path.name == name or Path(os.path.realpath(e.path)) == path],
    ):
        if len(matches) == 1:
            return matches[0]
        if matches:
            places = ", ".join(str(e.path) for e in matches)
            raise UserError(f"{name!r} names {len(matches)} worktrees: {places}. Give the path of one.")
    names = join_up_to([e.name for e in entries], SHOWN) or "none"
    raise UserError(f"No worktree {name!r} of {quote_path(repository.main)}. There are: {names}.")


def default_worktrees_folder(repository: GitRepository) -> Path:
    """Return where worktrees lie unless settings say otherwise: beside the repository, as VS Code places them."""
    return repository.main.with_name(f"{repository.main.name}.worktrees")


def count_unmerged_commits(repository: GitRepository, entry: WorktreeEntry, env: Mapping[str, str]) -> int:
    """Return how many commits would be lost with a worktree and the branch that Interlock gave it."""
    if not entry.commit.strip("0") or (entry.branch and not entry.is_own_branch):
        return 0
    without = [f"--exclude={entry.branch}"] if entry.branch else []
    asked = ("rev-list", "--count", entry.commit, "--not", *without, "--branches", "--tags", "--remotes")
    return int(read_git_text(repository.git_folder, *asked, env=env))
