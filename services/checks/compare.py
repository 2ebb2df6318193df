"""compare: which tests, and files that decide which tests run, are not as they were in a snapshot, and how to put them
back."""

import difflib
import hashlib
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from interlock.services.checks.separate import InseparableError, with_tests_of
from interlock.services.checks.table import CheckTable, Kind
from interlock.services.checks.view import Before
from interlock.services.files.disk import read_file
from interlock.services.snapshots.snapshots import Contents, Kept, Repository
from interlock.state.checks import TestChange, TestChanges

_LINES = 400
"""Of the diff that a person is shown."""


@dataclass(frozen=True)
class Comparison:
    """The workspace of today against a snapshot of before. Reads files; methods block."""

    root: Path
    repository: Repository
    before: str
    now: str
    """Snapshot of today: files that it has as before needn't be read."""
    command: str
    accepted: Mapping[str, str]
    """Path → hash of a change that a person accepted."""

    @cached_property
    def table(self) -> CheckTable:
        return CheckTable(self.command, self._text_before)

    def changes(self) -> TestChanges:
        """Return what isn't as before, with a diff of it."""
        found = [*self._changes()]
        hashes = {change.path: file.blob if (file := self._found(change.path)) else "" for change in found}
        return TestChanges(changes=tuple(found), diff=self._diff(found), hashes=hashes)

    def before_of(self, changes: Iterable[TestChange]) -> Iterator[Before]:
        """Yield what puts a view back: the changed files as they were, without tests that weren't there."""
        for change in changes:
            if change.how == "parts":
                yield (
                    change.path,
                    self._mode(change.path),
                    self._parts(change.path).encode(errors="surrogateescape"),
                )
            elif change.how == "new":
                yield change.path, 0, b""
            elif change.how != "beside code":
                yield change.path, self._was.files[change.path].mode, self._data_before(change.path)
        yield from ((path, 0, b"") for path in sorted(self._new_tests()))

    @cached_property
    def _was(self) -> Contents:
        return self.repository.contents(self.before)

    @cached_property
    def _is(self) -> Contents:
        return self.repository.contents(self.now)

    def _changes(self) -> Iterator[TestChange]:
        if self.before == self.now:
            return
        for path, kept in self._was.files.items():
            if self._is.files.get(path) == kept:
                continue
            if (kind := self.table.kind_of(path)) and (change := self._change(path, kind, kept)):
                yield change
        for path in self._is.files.keys() - self._was.files.keys():
            kind = self.table.kind_of(path)
            if self._is_accepted(path):
                continue
            # A makefile of another name is read before the one that was there.
            if kind == "settings" or (kind in ("mixed", "whole") and self._adds_tests(path, kind)):
                yield TestChange(path=path, how="new")

    def _adds_tests(self, path: str, kind: Kind) -> bool:
        if kind == "whole":
            return False  # what concerns tests there is new, and takes nothing away
        try:
            return with_tests_of(path, "", self._text_now(path), self.table) != self._text_now(path)
        except InseparableError:
            return True

    def _change(self, path: str, kind: Kind, kept: Kept) -> TestChange | None:
        now = self._found(path)
        if (now and _same(now, kept)) or self._is_accepted(path):
            return None
        if now is None:
            # Code that is gone takes its tests along: nothing of it can be tested any more.
            return (
                None if kind == "code" and not self._tests_beside(path) else TestChange(path=path, how="gone")
            )
        if kind in ("test", "settings") or stat.S_ISLNK(kept.mode) or stat.S_ISLNK(now.mode):
            return None if kind == "code" else TestChange(path=path, how="changed")
        try:
            made = with_tests_of(path, self._text_before(path) or "", self._text_now(path), self.table)
        except InseparableError:
            return TestChange(path=path, how="beside code" if kind == "code" else "whole")
        return TestChange(path=path, how="parts") if made != self._text_now(path) else None

    def _tests_beside(self, path: str) -> bool:
        """Whether a file that is gone held tests beside its code."""
        try:
            return with_tests_of(path, self._text_before(path) or "", "", self.table) != ""
        except InseparableError:
            return True

    def _new_tests(self) -> set[str]:
        """Tests that weren't there, other than those that the command names: what they need may be put back."""
        new = self._is.files.keys() - self._was.files.keys()
        return {path for path in new if self.table.kind_of(path) == "test"} - {*self.table.operands}

    def _parts(self, path: str) -> str:
        return with_tests_of(path, self._text_before(path) or "", self._text_now(path), self.table)

    def _mode(self, path: str) -> int:
        found = self._found(path)
        return found.mode if found else stat.S_IFREG | 0o644

    def _found(self, path: str) -> Kept | None:
        """Return the file as it is: a snapshot leaves out what was ignored in the meantime."""
        place = self.root / path
        try:
            mode = place.lstat().st_mode
            if stat.S_ISLNK(mode):
                return Kept(stat.S_IFLNK, _blob(os.fsencode(place.readlink())))
            return Kept(mode, _blob(read_file(place))) if stat.S_ISREG(mode) else None
        except OSError:
            return None

    def _text_now(self, path: str) -> str:
        try:
            return read_file(self.root / path).decode(errors="surrogateescape")
        except OSError:
            return ""

    def _text_before(self, path: str) -> str | None:
        if path not in self._was.files:
            return None
        return self._data_before(path).decode(errors="surrogateescape")

    def _data_before(self, path: str) -> bytes:
        return next(self.repository.blobs([self._was.files[path].blob]))

    def _is_accepted(self, path: str) -> bool:
        if path not in self.accepted:
            return False
        found = self._found(path)
        return self.accepted[path] == (found.blob if found else "")

    def _diff(self, changes: Iterable[TestChange]) -> str:
        lines: list[str] = []
        for change in changes:
            old, new = (self._text_before(change.path) or ""), self._text_now(change.path)
            if change.how == "parts":
                old = self._parts(change.path) if change.path.endswith(".rs") else old
            names = (f"a/{change.path}" if change.how != "new" else "/dev/null", f"b/{change.path}")
            if self._found(change.path) is None:
                names = (names[0], "/dev/null")
            shown = difflib.unified_diff(_lines(old), _lines(new), *names, lineterm="")
            lines += shown
        more = [f"[… {len(lines) - _LINES} more lines …]"] if len(lines) > _LINES else []
        return "\n".join([*lines[:_LINES], *more])


def _same(now: Kept, kept: Kept) -> bool:
    """Whether bytes, kind and the right to run it are the same."""
    kinds = [(stat.S_IFMT(file.mode), file.mode & stat.S_IXUSR) for file in (now, kept)]
    return now.blob == kept.blob and (kinds[0] == kinds[1] or stat.S_ISLNK(kept.mode))


def _lines(text: str) -> list[str]:
    return text.encode(errors="surrogateescape").decode(errors="replace").splitlines()


def _blob(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()
