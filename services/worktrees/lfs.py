"""lfs: names files of Git LFS whose content is missing."""

from collections.abc import Mapping
from pathlib import Path

from interlock.services.files.disk import read_file
from interlock.services.worktrees.repository import join_file_names, read_git_list
from interlock.state.file_names import quote_path

_LFS_POINTER, _LARGEST_POINTER, _LARGEST_ATTRIBUTES = b"version https://git-lfs", 1024, 1_000_000


def describe_missing_lfs_content(top: Path, env: Mapping[str, str]) -> list[str]:
    """Return a line that names the files of Git LFS whose content is missing, if there are any."""
    attributes = read_git_list(top, "ls-files", "-z", "--", ":(glob)**/.gitattributes", env=env)
    if not any(b"filter=lfs" in _read_small_file(top / name, _LARGEST_ATTRIBUTES) for name in attributes):
        return []
    files = read_git_list(top, "ls-files", "-z", "--", ":(attr:filter=lfs)", env=env)
    missing = [
        name for name in files if _read_small_file(top / name, _LARGEST_POINTER).startswith(_LFS_POINTER)
    ]
    if not missing:
        return []
    return [
        f"Files of Git LFS without their content: {join_file_names(missing)}. To get it: git -C {quote_path(top)} "
        "lfs pull"
    ]


def _read_small_file(file: Path, max_bytes: int) -> bytes:
    """Return what a file holds; nothing for a link, a larger file, or one that can't be read."""
    try:
        return b"" if file.is_symlink() else read_file(file, max_bytes)
    except OSError:
        return b""
