"""memory_imports: `@path` imports in memory files."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from interlock.services.protected_paths import private_part
from interlock.services.textfile import UnreadableError, read_text

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

MAX_DEPTH = 5
"""Imports within imports (gemini-cli: 5)."""
_REFERENCE = re.compile(r"(?<![^\s(])@([^\s@`<>\"'()\[\]|*]+)")
_TICKS = re.compile(r"`+")


@dataclass
class Imports:
    """One memory file with all that it imports."""

    roots: tuple[Path, ...]
    """Real paths of the directories that the file and its imports must stay in."""
    left: int
    """Bytes that may still be read."""
    seen: set[Path] = field(default_factory=set[Path])

    def text(self, file: Path, depth: int = 0) -> str:
        """The file with its imports in place. Raises `UnreadableError` for the file, never for an import."""
        real, root = self._real(file)
        if real in self.seen:
            raise UnreadableError("already included above")
        text = read_text(real, max(self.left, 0), root)
        self.left -= len(text.encode())
        self.seen.add(real)
        pieces: list[str] = []
        end = 0
        for start, stop, target in references(text):
            pieces += [text[end:start], self._import(file.parent, target, depth + 1)]
            end = stop
        return "".join([*pieces, text[end:]])

    def _import(self, folder: Path, target: str, depth: int) -> str:
        """What stands in place of `@target`."""
        try:
            if depth > MAX_DEPTH:
                raise UnreadableError(f"imports nest deeper than {MAX_DEPTH}")
            if self.left <= 0:
                raise UnreadableError("the memory file and its imports are too large")
            text = self.text(folder / target, depth)
        except UnreadableError as error:
            # A bare word that names no file is a mention of somebody or something.
            mention = "/" not in target and "." not in target
            return f"@{target}" if mention else f"@{target} <!-- not imported: {error} -->"
        return f"\n<!-- from {target} -->\n{text.strip()}\n<!-- end of {target} -->\n"

    def _real(self, file: Path) -> tuple[Path, Path]:
        """Where it leads, and the directory that this is in."""
        try:
            real = file.resolve()
        except (OSError, ValueError, RuntimeError):
            raise UnreadableError("not a usable path") from None
        root = next((r for r in self.roots if real.is_relative_to(r)), None)
        if root is None:
            raise UnreadableError("outside the project")
        # What no tool may read can't be had by an import either.
        if private_part(real.relative_to(root)):
            raise UnreadableError("may hold secrets")
        return real, root


def references(text: str) -> Iterator[tuple[int, int, str]]:
    """(start, end, target) of each `@target` at a word's start, not in code and not in an HTML comment."""
    if "@" not in text:
        return
    lines = text.split("\n")
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    for token in _markdown().parse(text):
        if token.type != "inline" or token.map is None:
            continue
        first, last = token.map
        block = "\n".join(lines[first:last])
        for match in _REFERENCE.finditer(_without_code(block)):
            target = match[1].rstrip(".,;:!?")
            if target:
                start = starts[first] + match.start()
                yield start, start + 1 + len(target), target


def _without_code(block: str) -> str:
    """The block with its code spans blanked, in time linear in its length."""
    runs = [(m.start(), m.end()) for m in _TICKS.finditer(block)]
    later: dict[int, list[int]] = {}
    for index in range(len(runs) - 1, -1, -1):
        later.setdefault(runs[index][1] - runs[index][0], []).append(index)
    pieces: list[str] = []
    end = index = 0
    while index < len(runs):
        start, stop = runs[index]
        same = later[stop - start]
        while same and same[-1] <= index:
            same.pop()
        escaped = start > 0 and block[start - 1] == "\\"
        if same and not escaped:
            close = same[-1]
            pieces += [block[end:start], " " * (runs[close][1] - start)]
            end = runs[close][1]
            index = close
        index += 1
    return "".join([*pieces, block[end:]])


@cache
def _markdown() -> "MarkdownIt":
    # Imported late: most memory files import nothing.
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark")
