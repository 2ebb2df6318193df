"""_opening: reading a workspace file for a tool; what goes wrong is a result, never an exception."""

import difflib
import errno
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from interlock.state.calls import ToolResult, failure
from interlock.state.tooling import PathRefused, Workspace

LARGEST = 20 * 1024 * 1024
"""Bytes of a file that tools read or edit (gemini-cli: 20 MB)."""


def checked(check: Callable[[str], Path], path: str) -> Path | ToolResult:
    """A workspace check, with its refusal as a result."""
    try:
        return check(path)
    except PathRefused as refused:
        return failure("path_refused", str(refused))


def kind_of(path: Path) -> Literal["file", "directory", "other", "missing"]:
    """`missing` too where we may not look, or the name is too long: using it will say why."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return "missing"
    return "directory" if stat.S_ISDIR(mode) else "file" if stat.S_ISREG(mode) else "other"


def read_bytes(workspace: Workspace, path: Path) -> bytes | ToolResult:
    """A file's bytes, or why there are none: missing, a directory, too large, not ours to read, not a file."""
    shown = workspace.relative(path)
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            return failure("is_directory", f"{shown!r} is a directory; list_directory shows what is in it.")
        if not stat.S_ISREG(status.st_mode):
            return failure("not_a_file", f"{shown!r} is a device, pipe or socket; only files can be read.")
        if status.st_size > LARGEST:
            return failure("too_large", _too_large(shown, status.st_size))
        return path.read_bytes()
    except OSError as error:
        return trouble(workspace, path, error)


def _too_large(shown: str, size: int) -> str:
    return (
        f"{shown!r} has {size} bytes, more than the {LARGEST} that can be read; search it with grep_search."
    )


def trouble(workspace: Workspace, path: Path, error: OSError) -> ToolResult:
    """An error of the file system as a result of one line."""
    shown = workspace.relative(path)
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return failure("file_not_found", f"No file {shown!r}.{_nearest(workspace, path)}")
    if isinstance(error, PermissionError):
        return failure("permission_denied", f"No permission for {shown!r}; ask the user to change it.")
    if error.errno == errno.ELOOP:
        return failure("not_a_file", f"{shown!r} is a symlink that leads back to itself; go on without it.")
    return failure("io_error", f"{shown!r} can't be used: {error.strerror or error}.")


def _nearest(workspace: Workspace, path: Path) -> str:
    """Names like it in the same directory, for a model that misspelt one."""
    try:
        names = sorted(entry.name for entry in path.parent.iterdir())
    except OSError:
        return f" There is no directory {workspace.relative(path.parent)!r} either; find it with glob."
    near = difflib.get_close_matches(path.name, names, n=3, cutoff=0.6)
    seen = [name for name in near if not _hidden(workspace, path.parent / name)]
    if not seen:
        return " Find it with glob or list_directory."
    return " Did you mean " + ", ".join(repr(workspace.relative(path.parent / name)) for name in seen) + "?"


def _hidden(workspace: Workspace, path: Path) -> bool:
    try:
        return workspace.ignored(workspace.readable(str(path)))
    except PathRefused:
        return True
