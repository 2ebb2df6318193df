"""_opening: reading a workspace file for a tool; what goes wrong is a result, never an exception."""

import difflib
import errno
import os
import stat
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Literal

from interlock.state.calls import ToolResult, failure
from interlock.state.tooling import FileChange, PathRefused, Place, ToolContext, Workspace
from interlock.tools._diff import unified_diff
from interlock.tools._text import TextFile, decode

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
_LINK = "a link was put there meanwhile"


Kind = Literal["directory", "file", "link", "other"]


class NotAFileError(OSError):
    """A device, pipe or socket stands there."""


def status_at(place: Place) -> os.stat_result:
    """Raises OSError: ELOOP for a link, since what was checked is a real path."""
    found = os.stat(place.name, dir_fd=place.directory, follow_symlinks=False)
    if stat.S_ISLNK(found.st_mode):
        raise OSError(errno.ELOOP, _LINK)
    return found


def open_file(place: Place) -> BufferedReader:
    """A regular file, for reading. Raises OSError: `IsADirectoryError`, `NotAFileError`, ELOOP for a link, …"""
    _check(status_at(place))  # opening a device may already do something
    descriptor = os.open(place.name, _READ, dir_fd=place.directory)
    try:
        _check(os.fstat(descriptor))
    except OSError:
        os.close(descriptor)
        raise
    return os.fdopen(descriptor, "rb")


@contextmanager
def open_directory(place: Place) -> Generator[int]:
    """A descriptor for listing. Raises OSError: ELOOP for a link, `NotADirectoryError`, …"""
    if not stat.S_ISDIR(status_at(place).st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
    descriptor = os.open(place.name, flags, dir_fd=place.directory)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def entry_kind(entry: os.DirEntry[str]) -> Kind:
    """To be asked while the directory is open: where the listing doesn't tell, the file system is asked."""
    if entry.is_symlink():
        return "link"
    if entry.is_dir(follow_symlinks=False):
        return "directory"
    return "file" if entry.is_file(follow_symlinks=False) else "other"


def _check(status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(status.st_mode):
        raise NotAFileError(errno.EINVAL, "a device, pipe or socket")


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
