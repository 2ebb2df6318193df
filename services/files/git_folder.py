"""git_folder: where the git repository around a folder is."""

from pathlib import Path

from interlock.services.files.stamps import path_exists


def find_git_root(directory: Path) -> Path | None:
    """Return the nearest directory, from this one upward, that contains `.git` (a directory or a file)."""
    return next((d for d in (directory, *directory.parents) if path_exists(d / ".git")), None)
