"""making: makes a worktree for a run, or finds the one that has its name."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from interlock.services.worktrees.lfs import describe_missing_lfs_content
from interlock.services.worktrees.listing import BRANCH_PREFIX, count_unmerged_commits, list_linked_worktrees
from interlock.services.worktrees.repository import GitRepository, find_commit, list_changed_files, run_git
from interlock.services.worktrees.submodules import populate_submodules
from interlock.services.worktrees.untracked_files import INCLUDE_FILE, copy_listed_files
from interlock.state.errors import UserError
from interlock.state.file_names import quote_name, quote_path
from interlock.state.text import format_count, replace_surrogates

IGNORE_ALL = "*\n"
"""The `.gitignore` of a folder of worktrees that lies in a work tree."""
_LONGEST_NAME = 100


@dataclass
class MadeWorktree:
    """A worktree in which a run is to work."""

    path: Path
    branch: str
    base: str
    """The commit that was checked out when it was made or found."""
    is_new: bool
    notes: list[str] = field(default_factory=list[str])
    """Lines for the person who starts the run."""


def make_or_reuse_worktree(
    repository: GitRepository,
    name: str,
    folder: Path,
    include: Sequence[str],
    env: Mapping[str, str],
    *,
    reads_include_file: bool,
) -> MadeWorktree:
    """Return the worktree `name` in `folder`, made now at the current commit unless it is there. Raises `UserError`.

    `include`: patterns of untracked files that it gets. `reads_include_file`: also those of `.worktreeinclude`.
    """
    branch = _require_branch_name(name, env)
    path = Path(os.path.realpath(folder)) / name.replace("/", "-")
    entries = list_linked_worktrees(repository, env)
    there = next((e for e in entries if Path(os.path.realpath(e.path)) == path), None)
    elsewhere = next((e for e in entries if e.branch == branch and e is not there and not e.missing), None)
    if there and there.is_incomplete:
        raise UserError(
            f"Worktree {name!r} is incomplete: git was stopped while it made {quote_path(path)}. Remove it first: "
            f"interlock worktrees remove {name}"
        )
    if elsewhere:
        there, path = elsewhere, elsewhere.path
    if there and there.missing:
        if not there.branch and (lost := count_unmerged_commits(repository, there, env)):
            raise UserError(
                f"Worktree {quote_path(path)} is missing, and {format_count(lost, 'commit')} of it "
                f"{'is' if lost == 1 else 'are'} on no branch. Keep the work first: git branch NAME {there.commit[:10]}"
            )
        run_git(repository.git_folder, "worktree", "remove", "--force", str(path), env=env)
        there = None
    if there:
        made = MadeWorktree(path, there.branch, there.commit, is_new=False)
        made.notes.append(
            f"Uses the worktree {quote_path(path)}, {_describe_head(there.branch, there.commit)}."
        )
    else:
        made = _add_worktree(repository, path, branch, env)
    source = repository.top
    if source and source != path:
        listed = source / INCLUDE_FILE
        made.notes += copy_listed_files(source, path, include, listed if reads_include_file else None, env)
        if not reads_include_file and listed.is_file():
            made.notes.append(
                f"Interlock ignored {INCLUDE_FILE}, because this folder isn't trusted. To make it "
                "count: interlock trust"
            )
        made.notes += populate_submodules(source, path, env)
    made.notes += describe_missing_lfs_content(path, env)
    return made


def _require_branch_name(name: str, env: Mapping[str, str]) -> str:
    """Return the branch of a worktree of this name. Raises `UserError` if git doesn't take it."""
    branch = f"{BRANCH_PREFIX}{name}"
    checked = run_git(Path("/"), "check-ref-format", "--branch", branch, env=env, check=False)
    too_long = len(name.encode(errors="replace")) > _LONGEST_NAME
    if not name or name.startswith((".", "-", "/")) or too_long or checked.returncode:
        shown = replace_surrogates(name)[:_LONGEST_NAME]
        raise UserError(
            f"--worktree: {quote_name(shown)} can't be the name of a branch. Expected letters, digits, '-', '_', '.' "
            f"or '/', at most {_LONGEST_NAME} bytes, as in: --worktree fix-login"
        )
    return branch


def _describe_head(branch: str, commit: str) -> str:
    return f"on branch {branch!r}" if branch else f"at commit {commit[:10]}"


def _add_worktree(repository: GitRepository, path: Path, branch: str, env: Mapping[str, str]) -> MadeWorktree:
    if os.path.lexists(path) and not (path.is_dir() and not any(path.iterdir())):
        raise UserError(
            f"{quote_path(path)} exists, and it isn't a worktree of {quote_path(repository.main)}. Give the worktree "
            "another name, or move that folder away."
        )
    kept = find_commit(repository.git_folder, f"refs/heads/{branch}", env)
    base = kept or find_commit(repository.git_folder, "HEAD", env)
    if not base:
        raise UserError(
            f"Repository {quote_path(repository.main)} has no commit yet, and a worktree begins at one. Commit "
            "something first: git commit"
        )
    _make_worktrees_folder(path.parent)
    if kept:
        run_git(repository.git_folder, "worktree", "add", str(path), branch, env=env)
        note = f"Made the worktree {quote_path(path)} on branch {branch!r}, which existed already."
        return MadeWorktree(path, branch, kept, is_new=True, notes=[note])
    run_git(
        repository.git_folder, "worktree", "add", "--no-track", "-b", branch, str(path), base, env=env
    )  # git undoes it itself if it is interrupted
    made = MadeWorktree(path, branch, base, is_new=True)
    made.notes.append(f"Made the worktree {quote_path(path)} on branch {branch!r}, at commit {base[:10]}.")
    if repository.top and (changed := len(list_changed_files(repository.top, env))):
        made.notes.append(
            f"{format_count(changed, 'file')} with uncommitted changes in {quote_path(repository.top)} "
            f"{'is' if changed == 1 else 'are'} not in the worktree."
        )
    return made


def _make_worktrees_folder(folder: Path) -> None:
    try:
        is_new = not folder.exists()
        folder.mkdir(parents=True, exist_ok=True)
        # In a work tree, as that of a submodule's project, git would list the worktrees as untracked.
        if is_new and any(os.path.lexists(place / ".git") for place in folder.parents):
            (folder / ".gitignore").write_text(IGNORE_ALL)
    except OSError as error:
        raise UserError(
            f"Can't make {quote_path(folder)} for worktrees: {error.strerror}. Name another folder in settings: "
            "worktree.folder"
        ) from error
