"""removal: removes worktrees."""

from collections.abc import Mapping
from contextlib import suppress

from interlock.services.worktrees.listing import (
    WorktreeEntry,
    count_unmerged_commits,
    default_worktrees_folder,
    list_linked_worktrees,
)
from interlock.services.worktrees.making import IGNORE_ALL, MadeWorktree
from interlock.services.worktrees.repository import GitRepository, find_commit, list_changed_files, run_git
from interlock.state.errors import UserError
from interlock.state.file_names import quote_path
from interlock.state.text import replace_surrogates


def remove_worktree(
    repository: GitRepository, entry: WorktreeEntry, env: Mapping[str, str], *, force: bool
) -> list[str]:
    """Remove a worktree, and its branch if Interlock named that; return a line for each thing done. Raises `UserError`.

    `force`: a person said that what it holds may go. Without it git itself refuses to remove uncommitted work.
    """
    if entry.locked is not None and not entry.is_incomplete:
        reason = f" ({replace_surrogates(entry.locked)})" if entry.locked else ""
        raise UserError(
            f"Worktree {quote_path(entry.path)} is locked{reason}. Unlock it first: git worktree unlock "
            f"{quote_path(entry.path)}"
        )
    has_submodules = not entry.missing and (entry.path / ".gitmodules").is_file()
    flags = ["--force"] * (2 if entry.is_incomplete else 1 if force or has_submodules or entry.missing else 0)
    run_git(repository.main, "worktree", "remove", *flags, str(entry.path), env=env)
    lines = [f"Removed the worktree {quote_path(entry.path)}."]
    with suppress(OSError):  # it holds other worktrees, or a person's files
        folder = entry.path.parent
        if folder == default_worktrees_folder(repository):
            ignore = folder / ".gitignore"
            if [*folder.iterdir()] == [ignore] and ignore.read_text() == IGNORE_ALL:
                ignore.unlink()
            folder.rmdir()
    if entry.is_own_branch and (now := find_commit(repository.main, f"refs/heads/{entry.branch}", env)):
        if now != entry.commit:
            lines.append(f"Branch {entry.branch!r} stays: it has moved to {now[:10]}.")
        else:
            run_git(repository.main, "update-ref", "-d", f"refs/heads/{entry.branch}", now, env=env)
            lines.append(
                f"Deleted branch {entry.branch!r}. To bring it back: git branch {entry.branch} {now[:10]}"
            )
    return lines


def remove_untouched_worktree(repository: GitRepository, made: MadeWorktree, env: Mapping[str, str]) -> bool:
    """Remove a worktree that was made now and in which nothing was done; return whether that was so."""
    entry = next((e for e in list_linked_worktrees(repository, env) if e.path == made.path), None)
    if not made.is_new or entry is None or (entry.branch, entry.commit) != (made.branch, made.base):
        return False
    if list_changed_files(entry.path, env, submodules=True):
        return False
    # The branch may have been there before: then only the worktree goes.
    unmerged = count_unmerged_commits(repository, entry, env)
    remove_worktree(repository, entry._replace(branch="") if unmerged else entry, env, force=False)
    return True
