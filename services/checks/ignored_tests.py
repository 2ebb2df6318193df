"""ignored_tests: keeps tests and runners' settings that no snapshot holds, mostly because git ignores them.

They are kept as a commit beside a run's first snapshot.

Of those that can't be kept (unreadable, hidden, with secrets, too many, too large) change time and inode are noted, so
that it is known at least whether one has changed.
"""

import json
import os
import stat
import time
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from itertools import chain, islice, takewhile
from pathlib import Path

from interlock.services.checks.mixed_files import can_contain_tests
from interlock.services.checks.test_table import CheckTable, load_runners
from interlock.services.files.disk import read_file
from interlock.services.files.protected import is_private_name
from interlock.services.snapshots.snapshots import ShadowRepository, SnapshotFile
from interlock.services.snapshots.workspace_tree import (
    FolderState,
    PathChange,
    TooManyFilesError,
    WorkspaceTree,
    change_mark_if_settled,
)
from interlock.state.errors import RunError
from interlock.state.settings import SnapshotSettings
from interlock.state.workspace import OpenDirEntry, PathRefused, Workspace

_MOST_KEPT, _MOST_BYTES = 2_000, 16 << 20
_MOST_NOTED = 20_000
_MOST_ENTRIES = 200_000
"""Files and folders looked at, kept or not; a second or two."""
_LONGEST_CODE, _MOST_CODE = 1 << 20, 64 << 20
"""Bytes of code read to see whether it holds tests; a longer file was generated."""

Mark = tuple[int, int] | None
"""Change time and inode of what isn't kept. None: changed so shortly before that a later change might not show."""


class IgnoredTests(WorkspaceTree):
    """Tests and runners' settings in a workspace that a snapshot of it doesn't hold."""

    def __init__(
        self,
        workspace: Workspace,
        table: CheckTable,
        held: Collection[str],
        known: Collection[str] = (),
        secret: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """`held`: files that the snapshot holds. `known`: tests that were there before. `secret`: of texts not kept."""
        super().__init__(workspace, SnapshotSettings.model_validate({"maxFiles": _MOST_NOTED}))
        self._table, self._held, self._known, self._secret = table, held, known, secret
        self.closed: dict[str, Mark] = {}
        """Folders of the user's that can't be read, each with a slash at its end."""
        self._noted: dict[str, Mark] = {}
        self._hidden: set[str] = set()
        self._modes: dict[str, int] = {}
        self._entries_left, self._bytes_left, self._code_left = _MOST_ENTRIES, _MOST_BYTES, _MOST_CODE

    def layout_json(self) -> bytes:
        """As `WorkspaceTree.layout`, with what isn't kept."""
        noted = {**self._noted, **self.closed}
        about: dict[str, object] = {"usual": {}, "odd": self._modes, "empty": [], "noted": noted}
        about["operands"] = self._table.runner_operands
        return json.dumps(about, sort_keys=True).encode()

    def _check_file_limit(self, files: int) -> None:
        if files > self._most or self._entries_left < 0:
            what = f"{_MOST_NOTED:,} tests" if files > self._most else f"{_MOST_ENTRIES:,} files"
            raise TooManyFilesError(f"There are more than {what} that no snapshot holds, too many to compare")

    def _list_unignored_entries(self, path: str) -> tuple[set[str], list[str]]:
        from interlock.tools.workspace_files import entry_kind, open_directory  # as in `WorkspaceTree`

        folder = Path(self._base + path)
        try:
            with self._workspace.open_parent_directory(folder) as place, open_directory(place) as opened:
                entries = [(entry.name, entry_kind(entry)) for entry in os.scandir(opened)]
        except PathRefused:  # where runs are kept
            return set(), []
        except OSError:
            self._record_own_unreadable_folder(path)
            return set(), []
        self._entries_left -= len(entries)
        if (
            path
            and self._table.is_generated_folder(path, {name for name, _ in entries})
            and not self._has_known_tests(path)
        ):
            return set(), []
        files: set[str] = set()
        folders: list[str] = []
        hidden = self._workspace.make_ignore_test(folder, git=False)
        for name, kind in entries:
            inside = f"{path}/{name}".lstrip("/")
            if is_private_name(name):
                continue
            if kind == "directory" and not self._table.is_third_party(f"{inside}/"):
                folders.append(name)
            elif kind in ("file", "link") and self._can_hold_unstored_tests(inside, is_link=kind == "link"):
                files.add(name)
                if hidden(name, False):
                    self._hidden.add(inside)
        return files, folders

    def _has_known_tests(self, folder: str) -> bool:
        """Return whether a folder that a build might have made holds known tests."""
        start = bisect_left(self._sorted_known_paths, f"{folder}/")
        inside = takewhile(
            lambda path: path.startswith(f"{folder}/"), islice(self._sorted_known_paths, start, None)
        )
        return any(map(self._table.is_test_or_settings, inside))

    @cached_property
    def _sorted_known_paths(self) -> Sequence[str]:
        return sorted(chain(self._held, self._known))

    def _can_hold_unstored_tests(self, path: str, *, is_link: bool) -> bool:
        kind = self._table.link_kind if is_link else self._table.file_kind
        return path not in self._held and bool(kind(path))

    def _record_own_unreadable_folder(self, path: str) -> None:
        """Note a folder that can't be listed. One of somebody else's is closed to the check, too."""
        with suppress(OSError):  # it is gone
            found = os.lstat(self._base + path)
            if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid():
                is_open = os.access(self._base + path, os.X_OK)  # what is in it can be changed by name
                self.closed[f"{path}/"] = None if is_open else change_mark_if_settled(found, time.time_ns())

    def _read_changed_file(self, path: str, folder: FolderState, place: OpenDirEntry) -> Iterator[PathChange]:
        is_code, now_ns = self._table.file_kind(path) == "code", time.time_ns()
        try:
            found = os.stat(place.name, dir_fd=place.directory, follow_symlinks=False)
        except OSError:  # it is gone
            return
        if is_code and found.st_size > _LONGEST_CODE:
            return
        most = self._bytes_left if len(self._modes) < _MOST_KEPT else -1
        self._longest = -1 if path in self._hidden else self._code_left if is_code else most
        self._noted[path] = change_mark_if_settled(found, now_ns)
        for change in super()._read_changed_file(path, folder, place):
            assert change.mode is not None, path  # each is looked at once
            if is_code:
                self._code_left -= len(change.data)
                if not can_contain_tests(path, change.data.decode(errors="surrogateescape"), self._table):
                    del self._noted[path]
                    continue
                if len(change.data) > most:
                    continue
            if b"\0" not in change.data and self._secret(change.data.decode(errors="replace")):
                continue
            del self._noted[path]
            self._bytes_left -= len(change.data)
            self._modes[path] = stat.S_IMODE(change.mode)
            yield change


def store_ignored_tests(
    repository: ShadowRepository,
    ref: str,
    snapshot: str,
    workspace: Workspace,
    command: str,
    redact: Callable[[str], str] = str,
) -> str:
    """Keep tests that a snapshot just taken doesn't hold as a commit; returns its id. `command`: the check's.

    Of those in which `redact` finds secrets, no content is kept: what git ignores often holds some.

    Raises `SnapshotError`, `TooManyFilesError`.
    """
    held = repository.read_contents(snapshot).files
    table = CheckTable(command, lambda path: _read_text(workspace.root / path))
    links = read_links(repository, held)
    while True:
        table = replace(table, linked=table.find_linked_test_folders(links))
        tree = IgnoredTests(workspace, table, held, secret=lambda text: redact(text) != text)
        commit = repository.commit_changes(ref, "", tree.scan_for_changes(), tree.layout_json, b"")
        links |= read_links(repository, repository.read_contents(commit).files)
        if table.find_linked_test_folders(links) == table.linked:
            return commit


def _read_text(path: Path) -> str | None:
    try:
        return read_file(path).decode(errors="surrogateescape")
    except OSError:
        return None


def read_links(repository: ShadowRepository, files: Mapping[str, SnapshotFile]) -> dict[str, str]:
    """Return the links among files that a repository has, each with its target."""
    links = {path: kept.blob for path, kept in files.items() if stat.S_ISLNK(kept.mode)}
    return (
        dict(zip(links, map(os.fsdecode, repository.read_blobs([*links.values()])), strict=True))
        if links
        else {}
    )


def read_marks_of_unstored_tests(
    repository: ShadowRepository, commit: str, table: CheckTable
) -> Mapping[str, Mark]:
    """Return what such a commit has no content of, by path; a folder's ends with a slash.

    Raises `RunError` if it was made for a command that names fewer tests.
    """
    about = json.loads(repository.read_layout(commit))
    if named := {*table.runner_operands} - {
        *about["operands"],
        *chain(*(runner.programs for runner in load_runners())),
    }:
        raise RunError(f"{min(named)!r} wasn't among the tests of the check that the run began with.")
    noted: dict[str, list[int] | None] = about["noted"]
    return {path: (mark[0], mark[1]) if mark else None for path, mark in noted.items()}


def change_time_and_inode(path: Path) -> Mark:
    """Return the mark of what is there; None: nothing is."""
    with suppress(OSError):
        found = path.lstat()
        return found.st_ctime_ns, found.st_ino
    return None
