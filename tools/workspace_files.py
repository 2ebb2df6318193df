"""workspace_files: read workspace files for tools; failures are one-line `ToolError`s."""

import difflib
import errno
import os
import stat
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from io import BufferedReader
from pathlib import Path
from typing import Literal

from interlock.state.calls import ToolError
from interlock.state.file_names import quote_name
from interlock.state.text import format_count
from interlock.state.tooling import FileChange, ToolContext
from interlock.state.workspace import FileConventions, OpenDirEntry, PathRefused, Workspace
from interlock.tools.file_content import TextFile, TextNotWritable, decode_text_file, split_lines
from interlock.tools.new_files import encode_new_file
from interlock.tools.stale_files import StaleFile, find_stale_file
from interlock.tools.text_diff import unified_diff

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
_LINK = "a link was put there meanwhile"


Kind = Literal["directory", "file", "link", "other"]


class NotAFileError(OSError):
    """The path is a device, pipe or socket."""


def stat_refusing_links(place: OpenDirEntry) -> os.stat_result:
    """Return the status of a place. Raise OSError: ELOOP for a link, since checked paths are real paths."""
    found = os.stat(place.name, dir_fd=place.directory, follow_symlinks=False)
    if stat.S_ISLNK(found.st_mode):
        raise OSError(errno.ELOOP, _LINK)
    return found


def open_regular_file(place: OpenDirEntry) -> BufferedReader:
    """Open a regular file for reading. Raises OSError: `IsADirectoryError`, `NotAFileError`, ELOOP for a link, …"""
    _require_regular_file(stat_refusing_links(place))  # opening a device can have effects
    descriptor = os.open(place.name, _READ, dir_fd=place.directory)
    try:
        _require_regular_file(os.fstat(descriptor))
    except OSError:
        os.close(descriptor)
        raise
    return os.fdopen(descriptor, "rb")


@contextmanager
def open_directory(place: OpenDirEntry) -> Generator[int]:
    """Open a directory for listing. Raises OSError: ELOOP for a link, `NotADirectoryError`, …"""
    if not stat.S_ISDIR(stat_refusing_links(place).st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
    descriptor = os.open(place.name, flags, dir_fd=place.directory)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def entry_kind(entry: os.DirEntry[str]) -> Kind:
    """Return what an entry is; call it while the directory is open, as the listing may lack the type."""
    if entry.is_symlink():
        return "link"
    if entry.is_dir(follow_symlinks=False):
        return "directory"
    return "file" if entry.is_file(follow_symlinks=False) else "other"


def _require_regular_file(status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(status.st_mode):
        raise NotAFileError(errno.EINVAL, "a device, pipe or socket")


_WRITABLE = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH


@dataclass(frozen=True)
class WriteTarget:
    """The file to write. `before` and `file` are null if it doesn't exist yet."""

    path: Path
    display_path: str
    before: bytes | None
    file: TextFile | None
    conventions: FileConventions
    stale: StaleFile | None = None
    """What the model doesn't know of the file; None: nothing."""

    @property
    def must_match_exactly(self) -> bool:
        """Whether the model hasn't seen what is there, so that nothing is guessed about what it means."""
        return self.stale is not None and self.stale.why != "part"

    def refuse_unseen_overwrite(self, after: bytes) -> None:
        """Raise `ToolError` if the model would write over text that it hasn't seen."""
        if self.stale and self.before is not None and after != self.before:
            raise self.stale.make_overwrite_error(self._diff(after))

    def _diff(self, after: bytes) -> str:
        return unified_diff(self.display_path, self.before, after, self.conventions)

    def to_file_change(self, after: bytes, message: str) -> FileChange:
        part = self.stale is not None and not self.stale.is_told_whole
        diff = self._diff(after)
        return FileChange(
            path=str(self.path), before=self.before, after=after, message=message, diff=diff, part=part
        )

    def to_matched_change(self, after: bytes, message: str) -> FileChange:
        """Like `to_file_change`, for a change whose place was found by its text; says what the model hadn't seen."""
        note = self.stale.note if self.stale and self.must_match_exactly else ""
        return self.to_file_change(after, message + note)

    def encode(self, raw: str) -> bytes:
        """Encode in the encoding of the file, which exists. Raise `ToolError` if it can't, or must not, hold the
        text."""
        if self.file is None:
            raise TypeError("A new file is encoded by its conventions.")
        try:
            return self.file.encode(raw)
        except TextNotWritable as refusal:
            raise ToolError(refusal.kind, f"{quote_name(self.display_path)} {refusal}") from refusal

    def to_new_file(self, text: str) -> FileChange:
        """Return the change that creates the file as its project's conventions say."""
        made = encode_new_file(text, self.conventions, self.display_path)
        if isinstance(made, str):
            raise ToolError("not_text", f"{quote_name(self.display_path)} {made}")
        count = format_count(len(split_lines(text)), "line")
        message = f"Created {quote_name(self.display_path)}: {count}{made.note}."
        return self.to_file_change(made.data, message)


def prepare_write_target(
    file_path: str, context: ToolContext, earlier_contents: Mapping[str, bytes], *, text: bool = True
) -> WriteTarget:
    """Return the file to write; raise `ToolError` for all that would fail later. Without `text` it may have any
    content."""
    path = context.workspace.resolve_writable(file_path)
    shown = context.workspace.display_path(path)
    is_own = str(path) in earlier_contents  # as a call of the same batch leaves it
    before = earlier_contents[str(path)] if is_own else _read_overwritable_file(path, context)
    conventions = context.workspace.read_conventions(path)
    file = None if before is None or not text else decode_text_file(before, conventions, path.name)
    if file and context.accepts_guess:
        file = replace(file, encoding=replace(file.encoding, is_guess=False))
    if text and before is not None and file is None:
        raise ToolError("not_text", f"{quote_name(shown)} is binary, not text; change it with a command.")
    stale = find_stale_file(shown, before, file, None if is_own else context.seen)
    if stale and context.workspace.is_ignored(path):  # git-ignored files may be written but not read
        stale = replace(stale, may_be_read=False)
    return WriteTarget(path, shown, before, file, conventions, stale)


def _read_overwritable_file(path: Path, context: ToolContext) -> bytes | None:
    """Return the bytes of a file that may be overwritten; None: it can be created. Raise `ToolError`."""
    try:
        with context.workspace.open_parent_directory(path) as place:
            mode = stat_refusing_links(place).st_mode
    except (FileNotFoundError, NotADirectoryError):
        _require_creatable(path, context)
        return None
    except OSError as error:
        raise to_tool_error(context.workspace, path, error) from error
    data = read_file_bytes(context.workspace, path)
    # The write is a rename, which only needs the directory: check the file's own mode here.
    if not (mode & _WRITABLE and os.access(path, os.W_OK)):
        shown = context.workspace.display_path(path)
        raise ToolError(
            "permission_denied",
            f"{quote_name(shown)} is write-protected; ask the user to allow writing.",
        )
    _require_writable_directory(path.parent, context)
    return data


def _require_creatable(path: Path, context: ToolContext) -> None:
    """Raise `ToolError` unless the nearest existing parent is a directory that can be written."""
    parent = next(d for d in path.parents if os.path.lexists(d))
    if not parent.is_dir():
        shown = context.workspace.display_path(parent)
        raise ToolError(
            "not_a_directory",
            f"{quote_name(shown)} is a file, so nothing can lie below it; choose another path.",
        )
    _require_writable_directory(parent, context)


def _require_writable_directory(directory: Path, context: ToolContext) -> None:
    """Raise `ToolError` unless entries can be added to the directory."""
    if not os.access(directory, os.W_OK | os.X_OK):
        shown = context.workspace.display_path(directory)
        raise ToolError(
            "permission_denied",
            f"No permission to write in {quote_name(shown)}; ask the user to change it.",
        )


LARGEST = 20 * 1024 * 1024
"""Largest file that tools read or edit, in bytes (gemini-cli: 20 MB)."""


def path_kind(workspace: Workspace, path: Path) -> Literal["file", "directory", "other", "missing"]:
    """Return what a path is; also `missing` if access is denied or the name is too long: using it will report why."""
    try:
        with workspace.open_parent_directory(path) as place:
            mode = stat_refusing_links(place).st_mode
    except OSError:
        return "missing"
    return "directory" if stat.S_ISDIR(mode) else "file" if stat.S_ISREG(mode) else "other"


def resolve_directory(workspace: Workspace, path: str) -> Path:
    """Return the real path of a directory that a call names. Raise `ToolError`: missing, not a directory."""
    real = workspace.resolve_readable(path)
    try:
        with workspace.open_parent_directory(real) as place:
            mode = stat_refusing_links(place).st_mode
    except OSError as error:
        raise to_tool_error(workspace, real, error) from error
    if not stat.S_ISDIR(mode):
        raise ToolError(
            "not_a_directory",
            f"{quote_name(workspace.display_path(real))} is a file; name the directory around it.",
        )
    return real


def resolve_file_if_allowed(workspace: Workspace, path: Path, *, allow_ignored: bool) -> Path | None:
    """Return a found file's real path if it may be read, else None; with `allow_ignored`, also if git ignores it."""
    # Git-ignored files can be written but not read; private files can be neither.
    for check in (
        (workspace.resolve_readable, workspace.resolve_writable)
        if allow_ignored
        else (workspace.resolve_readable,)
    ):
        with suppress(PathRefused):
            return check(str(path))
    return None


def read_file_bytes(workspace: Workspace, path: Path) -> bytes:
    """Return a file's bytes. Raise `ToolError`: missing, a directory, too large, not permitted, not a file."""
    try:
        with workspace.open_parent_directory(path) as place, open_regular_file(place) as file:
            data = file.read(LARGEST + 1)
            size = os.fstat(file.fileno()).st_size
    except OSError as error:
        raise to_tool_error(workspace, path, error) from error
    if len(data) > LARGEST:
        has = f"{quote_name(workspace.display_path(path))} has {max(size, len(data))} bytes"
        raise ToolError(
            "too_large", f"{has}, more than the {LARGEST} that can be read; search it with grep_search."
        )
    return prefer_editor_text(workspace, path, data)


def prefer_editor_text(workspace: Workspace, path: Path, data: bytes) -> bytes:
    """Return a file as the editor has it, maybe newer than `data`, its bytes on disk; keeps line ends and BOM."""
    if workspace.buffers is None or not any(path.is_relative_to(root) for root in workspace.roots):
        return data
    try:
        kept = data.decode()
    except UnicodeDecodeError:
        return data
    mark = "\ufeff" if kept.startswith("\ufeff") else ""
    shown = workspace.buffers.read_text(path)
    if shown is None:
        return data
    text = shown.removeprefix("\ufeff").replace("\r\n", "\n")
    if text == kept.removeprefix(mark).replace("\r\n", "\n"):
        return data
    return (mark + (text.replace("\n", "\r\n") if "\r\n" in kept else text)).encode(errors="replace")


def to_tool_error(workspace: Workspace, path: Path, error: OSError) -> ToolError:
    """Return the `ToolError` for a file system error."""
    shown = workspace.display_path(path)
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return ToolError(
            "file_not_found", f"No file {quote_name(shown)}.{_suggest_similar_names(workspace, path)}"
        )
    if isinstance(error, PermissionError):
        return ToolError(
            "permission_denied", f"No permission for {quote_name(shown)}; ask the user to change it."
        )
    if isinstance(error, IsADirectoryError):
        return ToolError(
            "is_directory", f"{quote_name(shown)} is a directory; list_directory shows what is in it."
        )
    if isinstance(error, NotAFileError):
        return ToolError(
            "not_a_file", f"{quote_name(shown)} is a device, pipe or socket; only files can be read."
        )
    if error.errno == errno.ELOOP:
        return _link_error(shown, path)
    return ToolError("io_error", f"{quote_name(shown)} can't be used: {error.strerror or error}.")


def _link_error(display_path: str, path: Path) -> ToolError:
    """Return the error of a path with a link: checked ones contain none except loops and links created since."""
    try:
        path.stat()
    except OSError as error:
        if error.errno == errno.ELOOP:
            return ToolError(
                "not_a_file",
                f"{quote_name(display_path)} is a symlink that leads back to itself; go on without it.",
            )
    return ToolError(
        "external_change",
        f"{quote_name(display_path)} changed while it was opened: a link stands there now.",
    )


def _suggest_similar_names(workspace: Workspace, path: Path) -> str:
    """Return a sentence with similar names in the same directory, for a model that misspelt one."""
    try:
        with workspace.open_parent_directory(path.parent) as place, open_directory(place) as directory:
            names = sorted(os.listdir(directory))  # noqa: PTH208 - by descriptor
    except (OSError, PathRefused):
        return f" There is no directory {quote_name(workspace.display_path(path.parent))} either; find it with glob."
    near = difflib.get_close_matches(path.name, names, n=3, cutoff=0.6)
    seen = [name for name in near if not _is_ignored_or_refused(workspace, path.parent / name)]
    if not seen:
        return " Find it with glob or list_directory."
    return (
        " Did you mean "
        + ", ".join(quote_name(workspace.display_path(path.parent / name)) for name in seen)
        + "?"
    )


def _is_ignored_or_refused(workspace: Workspace, path: Path) -> bool:
    try:
        return workspace.is_ignored(workspace.resolve_readable(str(path)))
    except PathRefused:
        return True
