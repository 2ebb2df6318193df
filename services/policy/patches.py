"""patches: which files a patch changes that a command applies; no argument of the command names them."""

import os
import posixpath
import re
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path

from interlock.services.files.disk import read_file
from interlock.services.shell.model import ShellCommand, ShellLine, program_of
from interlock.state.workspace import Workspace

_GIT = (("apply",), ("am",))
_UNSEEN = "applies a patch that is only known when it runs"
_LARGEST = 5_000_000
"""Bytes of a patch that is looked into."""
_NAMED = re.compile(
    r"^(?:\+\+\+|---|\*\*\*|(?:rename|copy) (?:from|to)|Index:|diff --git) +(.+?)[ \t]*$", re.MULTILINE
)
_ESCAPED = re.compile(r"\\([0-7]{3}|.)")


def patched(command: ShellCommand, line: ShellLine, bases: Sequence[str], workspace: Workspace) -> str | None:
    """A clause about a file that the program trusts, and that the patch of this command changes or may change."""
    words = command.argv
    if not words or not (program_of(words[0]) == "patch" or (words[0] == "git" and words[1:2] in _GIT)):
        return None
    read = (r.target.text for r in line.redirects if r.kind == "read" and r.target is not None)
    named = [
        text for word in (*words[1:], *read) for text in (word, word.partition("=")[2], word[2:]) if text
    ]
    found = [p for text, base in product(named, bases) if os.path.isfile(p := workspace.root / base / text)]  # noqa: PTH113 - a name may be too long for Path.is_file
    if command.fed or (not found and len(line.commands) > 1):  # another command of the line may make it
        return _UNSEEN
    try:
        changed = [*_paths(found)]
    except OSError:  # too large, or unreadable
        return _UNSEEN
    for path, base in product(changed, bases):
        if touched := workspace.protected(posixpath.join(base, path)):
            return f"applies a patch that changes {touched.part!r} ({touched.what})"
    return None


def _paths(patches: Sequence[Path]) -> Iterator[str]:
    """The files that patches name; git quotes odd names."""
    for patch in patches:
        for name in _NAMED.findall(read_file(patch, _LARGEST).decode("utf-8", "replace")):
            for one in (name.partition("\t")[0], *name.split()):
                yield _ESCAPED.sub(_letter, one.strip('"'))


def _letter(escaped: re.Match[str]) -> str:
    return chr(int(escaped[1], 8)) if len(escaped[1]) == 3 else escaped[1]
