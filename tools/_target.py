"""_target: the file that a writing tool is about to change, as earlier calls of its batch will leave it."""

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from interlock.state.calls import ToolResult, failure
from interlock.state.tooling import FileChange, ToolContext
from interlock.tools._diff import unified_diff
from interlock.tools._opening import checked, read_bytes, trouble
from interlock.tools._places import status_at
from interlock.tools._text import TextFile, decode

_WRITABLE = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH


@dataclass(frozen=True)
class Target:
    """`before` and `file` are null where there is no file yet."""

    path: Path
    shown: str
    before: bytes | None
    file: TextFile | None

    def change(self, after: bytes, message: str) -> FileChange:
        diff = unified_diff(self.shown, self.before, after)
        return FileChange(path=str(self.path), before=self.before, after=after, message=message, diff=diff)

    def encode(self, raw: str) -> bytes | ToolResult:
        """In the file's own encoding; a new file is UTF-8."""
        try:
            return (self.file or TextFile("")).encode(raw)
        except UnicodeEncodeError as error:
            bad = raw[error.start]
            name = self.file.encoding if self.file else "utf-8"
            return failure(
                "not_text",
                f"{self.shown!r} is {name}, which can't hold {bad!r}; write it with characters that it can.",
            )


def open_target(file_path: str, context: ToolContext, earlier: Mapping[str, bytes]) -> Target | ToolResult:
    """Everything that can be known to go wrong before anybody is asked."""
    path = checked(context.workspace.writable, file_path)
    if isinstance(path, ToolResult):
        return path
    shown = context.workspace.relative(path)
    if str(path) in earlier:
        before: bytes | ToolResult | None = earlier[str(path)]
    else:
        before = _present(path, context)
    if isinstance(before, ToolResult):
        return before
    file = None if before is None else decode(before)
    if before is not None and file is None:
        return failure("not_text", f"{shown!r} is binary, not text; change it with a command.")
    return Target(path, shown, before, file)


def _present(path: Path, context: ToolContext) -> bytes | ToolResult | None:
    try:
        with context.workspace.place(path) as place:
            mode = status_at(place).st_mode
    except FileNotFoundError:
        return _missing(path, context)
    except OSError as error:
        if isinstance(error, NotADirectoryError):
            return _missing(path, context)
        return trouble(context.workspace, path, error)
    data = read_bytes(context.workspace, path)
    # The write is a rename, which asks only the directory: the file's own mode must be looked at here.
    if isinstance(data, bytes) and not (mode & _WRITABLE and os.access(path, os.W_OK)):
        shown = context.workspace.relative(path)
        return failure("permission_denied", f"{shown!r} is write-protected; ask the user to allow writing.")
    return data if isinstance(data, ToolResult) else _closed(path.parent, context) or data


def _missing(path: Path, context: ToolContext) -> ToolResult | None:
    """Whether the file could be created: its nearest existing parent must be a directory that we may write."""
    parent = next(d for d in path.parents if os.path.lexists(d))
    shown = context.workspace.relative(parent)
    if not parent.is_dir():
        return failure(
            "not_a_directory", f"{shown!r} is a file, so nothing can lie below it; choose another path."
        )
    return _closed(parent, context)


def _closed(directory: Path, context: ToolContext) -> ToolResult | None:
    """Why nothing can be put into a directory."""
    if os.access(directory, os.W_OK | os.X_OK):
        return None
    shown = context.workspace.relative(directory)
    return failure("permission_denied", f"No permission to write in {shown!r}; ask the user to change it.")
