"""workspace_tree: the state of a workspace's files (bytes, permissions, links) and the changes since the last look.

Changes are detected by change time and inode, as in git: untouched files aren't read again.
"""

import hashlib
import json
import os
import stat
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from interlock.services.files.ignore import AGENT_FILES, HIDING_FILES
from interlock.services.files.protected import is_private_name
from interlock.state.errors import RunError
from interlock.state.workspace import OpenDirEntry, Workspace

if TYPE_CHECKING:  # the program that restores needs no settings, which take a tenth of a second to import
    from interlock.state.settings import SnapshotSettings

_RULES = {".gitignore", *AGENT_FILES, *HIDING_FILES}
_TICK_NS, _COARSE_TICK_NS = 20_000_000, 2_100_000_000
"""A file changed this shortly before it was examined may change again without a new time stamp: the kernel's clock for
files ticks every 1 to 10 ms, and some file systems store only whole seconds."""
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
_SEARCH = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW


class TooManyFilesError(RunError):
    """The folder has too many files, such as `/` or a home directory."""

    kind = "snapshot"


class FileState(NamedTuple):
    mode: int
    """As in `lstat`: type and permissions."""
    blob: str
    """git's id of its bytes, or of a link's target; empty if it is left out as too large or unreadable."""
    mark: tuple[int, int] | None
    """Change time and inode; None if it must be read again."""


@dataclass
class FolderState:
    mode: int = 0
    mark: int | None = None
    """Change time; None if it must be listed again."""
    files: dict[str, FileState] = field(default_factory=dict[str, FileState])
    """By name."""


class PathChange(NamedTuple):
    """One path, relative to the workspace; `mode` None: it was removed."""

    path: str
    mode: int | None
    data: bytes = b""
    blob: str = ""
    """git's id of the data."""


class WorkspaceTree:
    """One workspace folder, as of the last look."""

    def __init__(
        self, workspace: Workspace, limits: "SnapshotSettings", known: Mapping[str, Any] | None = None
    ) -> None:
        """`known`: the result of `known`, from this process or another."""
        self._workspace, self._most = workspace, limits.max_files
        self._longest = round(limits.max_file_mb * (1 << 20))
        self._base = f"{workspace.root}/"
        self.folders = {"": FolderState()}
        self.seen, self.due = 0, 0
        """Of a look under way: files read, and those to be read; 0 while the folders are listed."""
        self._layout = b""
        """The last result; empty once it may be stale."""
        for path, (mode, mark, files) in (known or {}).items():
            mine = {
                name: FileState(kind, blob, tuple(seen) if seen else None)
                for name, (kind, blob, seen) in files.items()
            }
            self.folders[path] = FolderState(mode, mark, mine)

    def to_json(self) -> dict[str, Any]:
        """Return the state as JSON-like data."""
        return {path: (folder.mode, folder.mark, folder.files) for path, folder in self.folders.items()}

    def scan_for_changes(self, only_folder: str | None = None) -> Iterator[PathChange]:
        """Yield changes since the last look, removals first. Must be consumed completely, or the tree becomes invalid.

        `only_folder`: if known, only direct entries of this folder can have changed.
        """
        self.seen = self.due = 0
        first = self.folders.keys() == {""} and self.folders[""].mark is None
        due, gone = self._scan_folders([only_folder] if only_folder in self.folders else [*self.folders])
        # The first look goes by the rules that are there.
        if not first and any(path.rpartition("/")[2] in _RULES for path in (*due, *gone)):
            for folder in self.folders.values():
                folder.mark = None
            due, more = self._scan_folders([*self.folders])
            gone |= more
        self._check_file_limit(sum(len(folder.files) for folder in self.folders.values()) + len(due))
        self.due = len(due)
        yield from (PathChange(path, None) for path, file in gone.items() if file.blob)
        for folder, paths in groupby(sorted(due, key=parent_folder), parent_folder):
            yield from self._read_changed_files(folder, paths)

    def scan_paths_without_reading(self) -> list[str]:
        """Return the files of a tree that wasn't looked at yet; none is read. Raises `TooManyFilesError`."""
        return self._scan_folders([""])[0]

    def _scan_folders(self, pending: list[str]) -> tuple[list[str], dict[str, FileState]]:
        """Return new or changed paths, and the files now removed or ignored."""
        due: list[str] = []
        gone: dict[str, FileState] = {}
        while pending:
            path = pending.pop()
            try:
                opened = os.open(self._base + path, _SEARCH)
            except OSError:
                self._layout = b""
                lost = self.folders.pop(path, FolderState()).files
                gone |= {_join_path(path, name): file for name, file in lost.items()}
                continue
            try:
                pending += self._scan_folder(path, opened, due, gone)
            finally:
                os.close(opened)
            self._check_file_limit(len(due))  # checked here already: walking a whole disk takes minutes
        return due, gone

    def _check_file_limit(self, files: int) -> None:
        if files > self._most:
            raise TooManyFilesError(
                f"more than {self._most:,} files lie in {self._base!r} (setting snapshots.maxFiles)"
            )

    def _scan_folder(
        self, path: str, descriptor: int, changed_paths: list[str], removed: dict[str, FileState]
    ) -> list[str]:
        """Examine one folder; returns its folders that weren't known."""
        folder, folders = self.folders.setdefault(path, FolderState()), list[str]()
        found, now_ns = os.fstat(descriptor), time.time_ns()
        if folder.mark != found.st_ctime_ns:
            names, inner = self._list_unignored_entries(path)
            if folder.mode != found.st_mode or names != folder.files.keys():
                self._layout = b""
            folder.mode, folder.mark = found.st_mode, _change_time_if_settled(found.st_ctime_ns, now_ns)
            changed_paths += [_join_path(path, name) for name in names - folder.files.keys()]
            removed |= {
                _join_path(path, name): folder.files.pop(name) for name in folder.files.keys() - names
            }
            folders = [inside for name in inner if (inside := _join_path(path, name)) not in self.folders]
        lost: list[str] = []
        look = os.stat
        for name, (_, _, mark) in folder.files.items():
            try:
                now = look(name, dir_fd=descriptor, follow_symlinks=False)
            except OSError:
                lost.append(name)
                continue
            if (now.st_ctime_ns, now.st_ino) != mark:
                changed_paths.append(_join_path(path, name))
        if lost:
            self._layout = b""
            removed |= {_join_path(path, name): folder.files.pop(name) for name in lost}
        return folders

    def _list_unignored_entries(self, path: str) -> tuple[set[str], list[str]]:
        """Return the names of files and links, and of folders, that aren't ignored."""
        from interlock.tools.workspace_files import (
            open_directory,  # imports all tools, which a restore doesn't need
        )

        folder = Path(self._base + path)
        ignored = self._workspace.make_ignore_test(folder)
        files: set[str] = set()
        folders: list[str] = []
        # Gone or unreadable: treated as empty.
        with (
            suppress(OSError),
            self._workspace.open_parent_directory(folder) as place,
            open_directory(place) as opened,
        ):
            for entry in os.scandir(opened):
                is_folder = entry.is_dir(follow_symlinks=False)
                if is_private_name(entry.name) or ignored(entry.name, is_folder):
                    continue
                if is_folder:
                    folders.append(entry.name)
                elif entry.is_symlink() or entry.is_file(follow_symlinks=False):
                    files.add(entry.name)
        return files, folders

    def _read_changed_files(self, folder_path: str, paths: Iterable[str]) -> Iterator[PathChange]:
        """Read files of one folder without following links on the way."""
        folder = self.folders[folder_path]
        try:
            with self._workspace.open_parent_directory(Path(self._base + folder_path, "_")) as place:
                for one in paths:
                    yield from self._read_changed_file(
                        one, folder, OpenDirEntry(place.directory, one.rpartition("/")[2])
                    )
        except OSError:  # the folder was removed; the next look detects that
            folder.mark = None

    def _read_changed_file(self, path: str, folder: FolderState, place: OpenDirEntry) -> Iterator[PathChange]:
        self.seen += 1
        before = folder.files.pop(place.name, None)
        now_ns = time.time_ns()
        try:
            found = os.stat(place.name, dir_fd=place.directory, follow_symlinks=False)
            data = read_file_or_link_content(place, found, self._longest)
        except OSError:  # unreadable, or no longer a file
            found, data = None, None
        if found is None or data is None:
            self._layout = b""
            mark = None if found is None else change_mark_if_settled(found, now_ns)
            folder.files[place.name] = FileState(0, "", mark)
            if before is not None and before.blob:
                yield PathChange(path, None)
            return
        blob = git_blob_id(data)
        folder.files[place.name] = FileState(found.st_mode, blob, change_mark_if_settled(found, now_ns))
        if before is None or not before.blob or before.mode != found.st_mode:
            self._layout = b""
        if before is None or (before.blob, before.mode) != (blob, found.st_mode):
            yield PathChange(path, found.st_mode, data, blob)

    def layout_json(self) -> bytes:
        """Return what git doesn't store (permissions, empty folders) as JSON."""
        self._layout = self._layout or self._encode_layout()
        return self._layout

    def _encode_layout(self) -> bytes:
        modes = {path: folder.mode for path, folder in self.folders.items() if path}
        full = {*map(parent_folder, modes)}
        empty = sorted(path for path in modes if path not in full and not self.folders[path].files)
        for path, folder in self.folders.items():
            kept = {name: file.mode for name, file in folder.files.items() if file.blob}
            modes |= {_join_path(path, name): mode for name, mode in kept.items() if not stat.S_ISLNK(mode)}
        counted: dict[str, Counter[int]] = {}
        for mode in modes.values():
            counted.setdefault(permission_kind(mode), Counter())[stat.S_IMODE(mode)] += 1
        usual = {kind: counts.most_common(1)[0][0] for kind, counts in counted.items()}
        odd = {
            path: stat.S_IMODE(mode)
            for path, mode in modes.items()
            if stat.S_IMODE(mode) != usual[permission_kind(mode)]
        }
        return json.dumps({"usual": usual, "odd": odd, "empty": empty}, sort_keys=True).encode()


def read_file_or_link_content(place: OpenDirEntry, status: os.stat_result, limit: int) -> bytes | None:
    """Return a file's bytes or a link's target; None if it is neither, or too large. Raises OSError."""
    if stat.S_ISLNK(status.st_mode):
        return os.fsencode(os.readlink(place.name, dir_fd=place.directory))
    if status.st_size > limit or not stat.S_ISREG(status.st_mode):  # opening a device can have effects
        return None
    opened = os.open(place.name, _READ, dir_fd=place.directory)
    try:
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            return None
        data = os.read(opened, status.st_size + 1)
        if len(data) != status.st_size:  # it grows or shrinks, or the system gave less than it has
            with open(opened, "rb", closefd=False) as file:
                data += file.read(limit + 1 - len(data))
        return None if len(data) > limit else data
    finally:
        os.close(opened)


def change_mark_if_settled(status: os.stat_result, now_ns: int) -> tuple[int, int] | None:
    """Return change time and inode; None if a further change might leave them as they are."""
    return (
        (status.st_ctime_ns, status.st_ino) if _change_time_if_settled(status.st_ctime_ns, now_ns) else None
    )


def _change_time_if_settled(changed_ns: int, now_ns: int) -> int | None:
    """Return the change time if a further change would alter it, else None."""
    return changed_ns if changed_ns < now_ns - (_TICK_NS if changed_ns % 10**9 else _COARSE_TICK_NS) else None


def permission_kind(mode: int) -> str:
    """Kind by which the most common permissions are grouped."""
    return "folder" if stat.S_ISDIR(mode) else "program" if mode & 0o100 else "file"


def git_blob_id(data: bytes) -> str:
    """Return git's id of a blob with these bytes."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def parent_folder(path: str) -> str:
    return path.rpartition("/")[0]


def _join_path(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name
