"""file_diffs: read what git says changed between two snapshots, file by file."""

import os
import re
from collections.abc import Iterable
from typing import NamedTuple

_ESCAPED_BYTE = re.compile("[\udc80-\udcff]")
_BINARY = "Binary files "


class FileDiff(NamedTuple):
    """A file's part of a diff."""

    old: str
    new: str
    """Another name, if it was renamed."""
    status: str
    """git's letter: A, M, D, R, T."""
    blobs: tuple[str | None, str | None]
    """Of the file before and after; None: there is none."""
    lines: list[str]
    """As git prints them; a byte that isn't UTF-8 is a surrogate."""

    @property
    def text_start(self) -> int:
        """Where the lines about the file's text begin, after those about the file."""
        about_text = (n for n, line in enumerate(self.lines) if line.startswith(("@@ ", _BINARY)))
        return next(about_text, len(self.lines))

    @property
    def is_utf8_text(self) -> bool:
        """Whether git shows what changed, and all of it is UTF-8."""
        text = self.lines[self.text_start :]
        return not any(line.startswith(_BINARY) or _ESCAPED_BYTE.search(line) for line in text)


def parse_raw_and_patch(lines: Iterable[str]) -> list[FileDiff]:
    """Return the files of what `git diff-tree --raw -p` prints: a list of names, then a patch of each."""
    found, patches = list[FileDiff](), -1
    for line in lines:
        if line.startswith(":") and patches < 0:
            found += _parse_raw_line(line)
        elif (begins := line.startswith("diff --git ")) or patches >= 0:
            patches += 1 if begins else 0
            found[patches].lines.append(line)
    return found


def split_git_lines(output: bytes) -> list[str]:
    return re.findall(r"[^\n]*\n", os.fsdecode(output))  # a form feed ends no line of git's


def _parse_raw_line(line: str) -> list[FileDiff]:
    """Return the pieces of a raw line: a file that became a link, or the reverse, has two."""
    about, *names = line.rstrip("\n").split("\t")
    *_, before, after, status = about.split(" ")
    old, new = _unquote_git_path(names[0]), _unquote_git_path(names[-1])
    blobs = (before if before.strip("0") else None, after if after.strip("0") else None)
    return [FileDiff(old, new, status[0], blobs, []) for _ in range(2 if status == "T" else 1)]


def _unquote_git_path(name: str) -> str:
    """Return a name as git prints it, with quotes around it if it has quotes or control characters."""
    if not name.startswith('"'):
        return name
    escapes = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "v": "\v", "f": "\f"}
    return re.sub(
        r"\\([0-7]{3}|.)",
        lambda m: chr(int(m[1], 8)) if len(m[1]) == 3 else escapes.get(m[1], m[1]),
        name[1:-1],
    )
