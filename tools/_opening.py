"""_opening: reading a workspace file for a tool; what goes wrong is a result, never an exception."""

import difflib
import errno
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Literal

from interlock.state.calls import ToolResult, failure
from interlock.state.tooling import PathRefused, Workspace
from interlock.tools._places import NotAFileError, open_directory, open_file, status_at

LARGEST = 20 * 1024 * 1024
"""Bytes of a file that tools read or edit (gemini-cli: 20 MB)."""


def checked(check: Callable[[str], Path], path: str) -> Path | ToolResult:
    """A workspace check, with its refusal as a result."""
    try:
        return check(path)
    except PathRefused as refused:
        return failure("path_refused", str(refused))


def kind_of(workspace: Workspace, path: Path) -> Literal["file", "directory", "other", "missing"]:
    """`missing` too where we may not look, or the name is too long: using it will say why."""
    try:
        with workspace.place(path) as place:
            mode = status_at(place).st_mode
    except OSError:
        return "missing"
    return "directory" if stat.S_ISDIR(mode) else "file" if stat.S_ISREG(mode) else "other"


def real_file(workspace: Workspace, path: Path, *, ignored: bool) -> Path | None:
    """Where a file that was found leads, if it may be read; with `ignored` also what git ignores."""
    # What git ignores can't be read, but it can be written; what is private is refused by both.
    for check in (workspace.readable, workspace.writable) if ignored else (workspace.readable,):
        with suppress(PathRefused):
            return check(str(path))
    return None


def read_bytes(workspace: Workspace, path: Path) -> bytes | ToolResult:
    """A file's bytes, or why there are none: missing, a directory, too large, not ours to read, not a file."""
    try:
        with workspace.place(path) as place, open_file(place) as file:
            data = file.read(LARGEST + 1)
            size = os.fstat(file.fileno()).st_size
    except OSError as error:
        return trouble(workspace, path, error)
    if len(data) > LARGEST:
        return failure("too_large", _too_large(workspace.relative(path), max(size, len(data))))
    return data


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
    if isinstance(error, IsADirectoryError):
        return failure("is_directory", f"{shown!r} is a directory; list_directory shows what is in it.")
    if isinstance(error, NotAFileError):
        return failure("not_a_file", f"{shown!r} is a device, pipe or socket; only files can be read.")
    if error.errno == errno.ELOOP:
        return _link(shown, path)
    return failure("io_error", f"{shown!r} can't be used: {error.strerror or error}.")


def _link(shown: str, path: Path) -> ToolResult:
    """Checked paths hold no links, but for those that lead nowhere else: a round, or one put there since."""
    try:
        path.stat()
    except OSError as error:
        if error.errno == errno.ELOOP:
            text = f"{shown!r} is a symlink that leads back to itself; go on without it."
            return failure("not_a_file", text)
    return failure("external_change", f"{shown!r} changed while it was opened: a link stands there now.")


def _nearest(workspace: Workspace, path: Path) -> str:
    """Names like it in the same directory, for a model that misspelt one."""
    try:
        with workspace.place(path.parent) as place, open_directory(place) as directory:
            names = sorted(os.listdir(directory))  # noqa: PTH208 - by descriptor
    except (OSError, PathRefused):
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
