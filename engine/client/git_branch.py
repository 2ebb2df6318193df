"""git_branch: the branch that a folder's git repository is on, read without running git."""

from pathlib import Path

from interlock.services.files.disk import read_file
from interlock.services.files.git_folder import find_git_root


def read_git_branch_or_commit(folder: Path) -> str:
    """The current branch, or a commit's prefix; empty outside a repository. Runs no program."""
    root = find_git_root(folder)
    if root is None:
        return ""
    place = root / ".git"
    try:
        if place.is_file():  # a worktree's, or a submodule's
            place = root / read_file(place).decode("utf-8", "replace").removeprefix("gitdir:").strip()
        head = read_file(place / "HEAD").decode("utf-8", "replace").strip()
    except OSError:
        return ""
    return head.removeprefix("ref: refs/heads/") if head.startswith("ref:") else head[:8]
