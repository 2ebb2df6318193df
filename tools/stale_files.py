"""stale_files: files that a model would change without having seen them as they are now."""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from interlock.state.file_names import quote_name
from interlock.state.seen import How, SeenFile, SeenFiles, UnseenTextError
from interlock.state.workspace import FileConventions
from interlock.tools.file_content import TextFile
from interlock.tools.text_diff import unified_diff

_MOST_DIFF = 20_000
"""Characters of a diff in an answer; a longer one is cut."""
_CUT = "… (the diff is longer; read the file)\n"


def make_seen_file(path: str, data: bytes, file: TextFile | None, how: How = "read") -> SeenFile:
    """Return how a model sees a file with these bytes now. `path`: as shown to it."""
    digest = hashlib.sha256(data).hexdigest()
    return SeenFile(path=path, digest=digest, how=how, text=file.text if file else None)


def diff_since_seen(path: str, file: TextFile | None, seen_files: SeenFiles) -> str:
    """Return the diff from a file's text as it was last seen, without secrets; empty: unknown, or only bytes differ."""
    if file is None or (before := seen_files.load_text(path)) is None:
        return ""
    old, new = (text.encode(errors="replace") for text in (before, seen_files.redact(file.text)))
    return unified_diff(path, old, new, FileConventions(confirmed_encoding="utf-8"))


@dataclass(frozen=True)
class StaleFile:
    """A file that the model doesn't know as it is."""

    why: Literal["changed", "unread", "part"]
    """`part`: it is as it was seen, but only some of its text was."""
    now: SeenFile
    seen: SeenFile | None
    file: TextFile | None
    seen_files: SeenFiles
    may_be_read: bool = True

    @cached_property
    def changes(self) -> str:
        """The diff since the model saw it; empty: unknown, or only bytes differ."""
        if self.seen is None or not self.may_be_read:
            return ""
        return diff_since_seen(self.seen.path, self.file, self.seen_files)

    @property
    def is_told_whole(self) -> bool:
        """Whether the model knows all of the file once it has read `changes`."""
        whole = self.seen is not None and self.seen.how != "part"
        return self.why == "changed" and whole and 0 < len(self.changes) <= _MOST_DIFF

    @property
    def note(self) -> str:
        """What to tell the model after an edit that was matched with what is there."""
        path, how = quote_name(self.now.path), "the text was matched exactly with what is there."
        if self.why == "unread":
            return f"\nYou hadn't read {path}; {how}"
        return f"\n{path} had changed since you last saw it; {how}{self._format_changes()}"

    def _format_changes(self) -> str:
        return f" What had changed:\n{_cut_diff(self.changes)}" if self.changes else " Read it again."

    def make_match_error(self, problem: str) -> UnseenTextError:
        """Return the error of an edit that has no place in the file as it is."""
        path = quote_name(self.now.path)
        if self.why == "unread":
            text = f"You haven't read {path}, so its text must match exactly. {problem}"
            return UnseenTextError("not_read", text)
        text = f"{path} changed since you last saw it, so the text must match exactly. {problem}"
        seen = (self.now,) if self.is_told_whole else ()
        return UnseenTextError("external_change", text + "\n" + self._format_changes().strip(), seen)

    def make_overwrite_error(self, call_diff: str) -> UnseenTextError:
        """Return the error of a call that would write over what the model hasn't seen. The next one isn't refused."""
        path = quote_name(self.now.path)
        head, kind = {
            "changed": (f"{path} changed since you last saw it", "external_change"),
            "unread": (f"{path} exists and you haven't read it", "not_read"),
            "part": (f"You have read only a part of {path}", "not_read"),
        }[self.why]
        if not self.may_be_read:
            shown = "It is ignored by git, so its text isn't shown. "
        elif self.changes:
            shown = f"What changed since:\n{_cut_diff(self.changes)}"
        else:
            shown = f"Your call would change:\n{_cut_diff(call_diff)}"
        end = "Edit what is there now, or send the same call again to write over it."
        return UnseenTextError(kind, f"{head}, so nothing was written. {shown}{end}", (self.now,))


def _cut_diff(diff: str) -> str:
    if len(diff) <= _MOST_DIFF:
        return diff
    return diff[: diff.rfind("\n", 0, _MOST_DIFF) + 1] + _CUT


def find_stale_file(
    path: str, data: bytes | None, file: TextFile | None, seen_files: SeenFiles | None
) -> StaleFile | None:
    """Return what the model doesn't know of a file that it would change. None: it knows it, or nothing is there to
    lose. `path`: as shown to it."""
    if not data or seen_files is None:
        return None
    now, seen = make_seen_file(path, data, file), seen_files.find_seen_file(path)
    if seen is None:
        return StaleFile("unread", now, None, file, seen_files)
    if seen.digest != now.digest:
        return StaleFile("changed", now, seen, file, seen_files)
    return StaleFile("part", now, None, file, seen_files) if seen.how == "part" else None
