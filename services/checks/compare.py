"""compare: which tests, and files that decide which tests run, are not as they were in a snapshot, and how to put them
back."""

import difflib
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from interlock.services.checks.ignored_tests import (
    IgnoredTests,
    Mark,
    change_time_and_inode,
    read_links,
    read_marks_of_unstored_tests,
)
from interlock.services.checks.mixed_files import InseparableError, can_contain_tests, restore_tests_in_text
from interlock.services.checks.test_table import CheckTable, Kind
from interlock.services.checks.view import Before
from interlock.services.files.disk import read_file
from interlock.services.snapshots.snapshots import ShadowRepository, SnapshotContents, SnapshotFile
from interlock.services.snapshots.workspace_tree import git_blob_id, read_file_or_link_content
from interlock.state.checks import TestChange, TestChanges
from interlock.state.workspace import Workspace
from interlock.tools.file_content import decode_text_file

_LONGEST = 100_000_000
"""Bytes of a test; of a longer one those of before count."""
_LINES = 400
"""Of the diff that a person is shown."""


@dataclass(frozen=True)
class Comparison:
    """The workspace of today against a snapshot of before. Reads files; methods block."""

    workspace: Workspace
    repository: ShadowRepository
    before: str
    now: str
    """Snapshot of today: files that it has as before needn't be read."""
    ignored: str
    """Commit of the tests that the snapshot of before doesn't hold."""
    command: str
    accepted: Mapping[str, str]
    """Path → hash of a change that a person accepted."""

    @cached_property
    def table(self) -> CheckTable:
        table = CheckTable(self.command, self._text_before)
        return replace(
            table,
            linked=table.find_linked_test_folders(read_links(self.repository, self._contents_before.files)),
        )

    @property
    def root(self) -> Path:
        return self.workspace.root

    def find_changes(self) -> TestChanges:
        """Return what isn't as before, with a diff of it. Raises `RunError`."""
        found = [*self._iterate_changes()]
        hashes = {change.path: self._acceptance_fingerprint(change.path) for change in found}
        return TestChanges(changes=tuple(found), diff=self._format_shortened_diff(found), hashes=hashes)

    def files_to_restore_or_remove(self, changes: Iterable[TestChange]) -> Iterator[Before]:
        """Yield what puts a view back: the changed files as they were, without tests that weren't there."""
        changes = sorted(changes, key=lambda change: not self._is_possible_test_output(change.path))
        gone = {change.path for change in changes if change.how in ("new", "added", "built")}
        # First, as a link may stand where a folder was.
        yield from ((path, 0, b"") for path in sorted(gone | self._new_tests_not_in_command()))
        for change in changes:
            if change.how == "parts":
                yield (
                    change.path,
                    self._current_file_mode(change.path),
                    self._text_with_restored_tests(change.path).encode(errors="surrogateescape"),
                )
            elif change.path not in gone and change.how not in ("beside code", "not kept"):
                yield (
                    change.path,
                    self._contents_before.files[change.path].mode,
                    self._data_before(change.path),
                )

    def _is_possible_test_output(self, path: str) -> bool:
        """Return whether an ignored file may be what a run of the tests left, so that it must be older than
        they are."""
        return path in self._stored_ignored_tests.files and not self.table.file_kind(path.rpartition("/")[2])

    @cached_property
    def _stored_ignored_tests(self) -> SnapshotContents:
        return self.repository.read_contents(self.ignored)

    @cached_property
    def _contents_before(self) -> SnapshotContents:
        kept, ignored = self.repository.read_contents(self.before), self._stored_ignored_tests
        return SnapshotContents({**ignored.files, **kept.files}, {**ignored.folders, **kept.folders})

    @cached_property
    def _marks_before(self) -> Mapping[str, Mark]:
        return read_marks_of_unstored_tests(self.repository, self.ignored, self.table)

    @cached_property
    def _contents_now(self) -> SnapshotContents:
        return self.repository.read_contents(self.now)

    @cached_property
    def _ignored_tests_and_unreadable_folders(self) -> tuple[Set[str], Set[str]]:
        """Tests of today that its snapshot doesn't hold, and folders that can't be read."""
        known = [*self._contents_before.files, *self._marks_before]
        tree = IgnoredTests(self.workspace, self.table, self._contents_now.files, known)
        return {*tree.scan_paths_without_reading()}, tree.closed.keys()

    @cached_property
    def _new_paths(self) -> Set[str]:
        names, _ = self._ignored_tests_and_unreadable_folders
        return (
            (self._contents_now.files.keys() | names)
            - self._contents_before.files.keys()
            - self._marks_before.keys()
        )

    def _iterate_changes(self) -> Iterator[TestChange]:
        for path, kept in self._contents_before.files.items():
            if self._contents_now.files.get(path) == kept:
                continue
            kind = self.table.link_kind(path) if stat.S_ISLNK(kept.mode) else self.table.file_kind(path)
            if kind and (change := self._classify_change(path, kind, kept)):
                yield change
        _, closed = self._ignored_tests_and_unreadable_folders
        for path in sorted(self._marks_before.keys() | closed):
            mark = self._marks_before.get(path)
            if (
                mark is None or mark != change_time_and_inode(self.root / path)
            ) and not self._is_change_accepted(path):
                yield TestChange(path=path, how="not kept")
        for path in sorted(self._new_paths):
            kind = self._current_file_kind(path)
            if self._is_change_accepted(path):
                continue
            # A makefile of another name is read before the one that was there.
            if kind == "settings" or (kind in ("mixed", "whole") and self._has_added_tests(path, kind)):
                yield TestChange(path=path, how="new")
        if any(self.table.file_kind(path) == "test" for path in self._contents_before.files):
            # It runs beside those that were there, and may change what they see.
            unseen = tuple(folder for folder in self._marks_before if folder.endswith("/"))
            for path in sorted(self._new_tests_not_in_command()):
                if not path.startswith(unseen) and not self._is_change_accepted(path):
                    yield TestChange(path=path, how="added")

    def _has_added_tests(self, path: str, kind: Kind) -> bool:
        if kind == "whole":
            return False  # what concerns tests there is new, and takes nothing away
        try:
            return restore_tests_in_text(
                path, "", self._current_text_or_empty(path), self.table
            ) != self._current_text_or_empty(path)
        except InseparableError:
            return True

    def _classify_change(self, path: str, kind: Kind, kept: SnapshotFile) -> TestChange | None:
        now = self._read_current_file(path)
        if (now and _is_same_file(now, kept)) or self._is_change_accepted(path):
            return None
        if (
            path in self._stored_ignored_tests.files
            and kind == "test"
            and _is_compiled_file(path, self._data_before(path))
        ):
            return None if now is None else TestChange(path=path, how="built")
        if now is None:
            # Code that is gone takes its tests along: nothing of it can be tested any more.
            return (
                None
                if kind == "code" and not can_contain_tests(path, self._text_before(path) or "", self.table)
                else TestChange(path=path, how="gone")
            )
        if kind in ("test", "settings") or stat.S_ISLNK(kept.mode) or stat.S_ISLNK(now.mode):
            return None if kind == "code" else TestChange(path=path, how="changed")
        try:
            made = restore_tests_in_text(
                path, self._text_before(path) or "", self._current_text_or_empty(path), self.table
            )
        except InseparableError:
            return TestChange(path=path, how="beside code" if kind == "code" else "whole")
        return TestChange(path=path, how="parts") if made != self._current_text_or_empty(path) else None

    def _new_tests_not_in_command(self) -> set[str]:
        """Tests that weren't there, other than those that the command names: what they need may be put back."""
        return {path for path in self._new_paths if self._current_file_kind(path) == "test"} - {
            *self.table.runner_operands
        }

    def _current_file_kind(self, path: str) -> Kind:
        is_link = (self.root / path).is_symlink()
        return self.table.link_kind(path) if is_link else self.table.file_kind(path)

    def _text_with_restored_tests(self, path: str) -> str:
        return restore_tests_in_text(
            path, self._text_before(path) or "", self._current_text_or_empty(path), self.table
        )

    def _current_file_mode(self, path: str) -> int:
        found = self._read_current_file(path)
        return found.mode if found else stat.S_IFREG | 0o644

    def _read_current_file(self, path: str) -> SnapshotFile | None:
        """Return the file as it is: a snapshot leaves out what was ignored in the meantime."""
        try:
            # A folder on the way that became a link may hold more than is looked at.
            with self.workspace.open_parent_directory(self.root / path) as place:
                found = os.stat(place.name, dir_fd=place.directory, follow_symlinks=False)
                data = read_file_or_link_content(place, found, _LONGEST)
        except OSError:
            return None
        return None if data is None else SnapshotFile(found.st_mode, git_blob_id(data))

    def _current_text_or_empty(self, path: str) -> str:
        try:
            return read_file(self.root / path).decode(errors="surrogateescape")
        except OSError:
            return ""

    def _text_before(self, path: str) -> str | None:
        if path not in self._contents_before.files:
            return None
        return self._data_before(path).decode(errors="surrogateescape")

    def _data_before(self, path: str) -> bytes:
        return next(self.repository.read_blobs([self._contents_before.files[path].blob]))

    def _is_change_accepted(self, path: str) -> bool:
        return self.accepted.get(path) == self._acceptance_fingerprint(path)

    def _acceptance_fingerprint(self, path: str) -> str:
        """Return what tells whether a file is still as somebody accepted it; empty: it is gone."""
        if path in self._marks_before or path.endswith("/"):
            return ":".join(map(str, change_time_and_inode(self.root / path) or ()))
        found = self._read_current_file(path)
        return found.blob if found else ""

    def _format_shortened_diff(self, changes: Iterable[TestChange]) -> str:
        lines: list[str] = []
        for change in changes:
            if change.how in ("built", "not kept"):
                continue
            old, new = (self._text_before(change.path) or ""), self._current_text_or_empty(change.path)
            if change.how == "parts":
                old = self._text_with_restored_tests(change.path) if change.path.endswith(".rs") else old
            names = (
                f"a/{change.path}" if change.how not in ("new", "added") else "/dev/null",
                f"b/{change.path}",
            )
            if self._read_current_file(change.path) is None:
                names = (names[0], "/dev/null")
            before, after = (self._decode_text(change.path, text) for text in (old, new))
            if before is None or after is None:
                lines.append(f"{change.path} is binary, and has changed")
                continue
            lines += difflib.unified_diff(before.splitlines(), after.splitlines(), *names, lineterm="")
        more = [f"[… {len(lines) - _LINES} more lines …]"] if len(lines) > _LINES else []
        return "\n".join([*lines[:_LINES], *more])

    def _decode_text(self, path: str, escaped: str) -> str | None:
        """Return a file's text in its own encoding; None: it is binary. `escaped`: its bytes as `os.fsdecode` does."""
        conventions = self.workspace.read_conventions(self.root / path)
        file = decode_text_file(escaped.encode(errors="surrogateescape"), conventions, path)
        return file and file.text


_BUILT = (b"\x7fELF", b"MZ", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe", b"!<arch>\n", b"BC\xc0\xde", b"\0asm")
"""How programs, libraries and objects begin: of Linux, Windows, macOS, Java and LLVM."""
_BUILT_NAMES = (".o", ".obj", ".lo", ".la", ".pyc", ".beam", ".gcda", ".gcno", ".cmi", ".cmo", ".hi", ".rlib")


def _is_compiled_file(path: str, data: bytes) -> bool:
    """Return whether a file was compiled: put back, it would be taken for newer than the code that has been
    repaired."""
    return data.startswith(_BUILT) or path.endswith(_BUILT_NAMES)


def _is_same_file(now: SnapshotFile, kept: SnapshotFile) -> bool:
    """Return whether bytes, kind and the right to run it are the same."""
    kinds = [(stat.S_IFMT(file.mode), file.mode & stat.S_IXUSR) for file in (now, kept)]
    return now.blob == kept.blob and (kinds[0] == kinds[1] or stat.S_ISLNK(kept.mode))
