"""imports: the text of an instruction file with its `@file` imports in place, each file and each text once."""

import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from interlock.services.files.filesystem import UnreadableError, read_truncated_text
from interlock.services.files.protected import find_private_name
from interlock.services.files.stamps import real_path, record_read

if TYPE_CHECKING:
    from markdown_it import MarkdownIt


MAX_DEPTH = 5
"""Maximum nesting of imports (gemini-cli: 5)."""
_REFERENCE = re.compile(r"(?<![^\s(])@([^\s@`<>\"'()\[\]|*]+)")
_TICKS = re.compile(r"`+")


class AlreadyIncludedError(UnreadableError):
    """The file, or another one with the same text, is included already."""

    def __init__(self, first: Path) -> None:
        super().__init__("already included above")
        self.first = first
        """The file that has the text."""


@dataclass
class IncludedTexts:
    """The files of one conversation's instructions: a file or text that comes again is left out."""

    files: dict[Path, Path] = field(default_factory=dict[Path, Path])
    """Real path → the path by which it was included."""
    texts: dict[bytes, Path] = field(default_factory=dict[bytes, Path])
    """Hash of a file's text → the same."""

    def copy(self) -> "IncludedTexts":
        """Return these files and texts, to add others without changing this."""
        return IncludedTexts({**self.files}, {**self.texts})

    def require_new_file(self, real: Path) -> None:
        """Raise `AlreadyIncludedError` if a file is included already."""
        if real in self.files:
            raise AlreadyIncludedError(self.files[real])

    def add(self, file: Path, real: Path, text: str) -> None:
        """Note a file. Raises `AlreadyIncludedError` if another one has the same text."""
        mark = hashlib.sha256(text.strip().encode("utf-8", "surrogatepass")).digest()
        first = self.texts.setdefault(mark, file) if text.strip() else file
        self.files[real] = first
        if first != file:
            raise AlreadyIncludedError(first)


@dataclass
class ImportExpansion:
    """State while one instruction file and its imports are expanded."""

    roots: tuple[Path, ...]
    """Real paths of the directories that the file and its imports must stay in."""
    left: int
    """Bytes that may still be read."""
    included: IncludedTexts = field(default_factory=IncludedTexts)
    """Of the files before."""
    seen: set[Path] = field(default_factory=set[Path])
    """Real paths of the file and its imports."""

    def expand_file(self, file: Path, depth: int = 0) -> str:
        """Return the file with its imports expanded. Raises `UnreadableError` for the file, never for an import."""
        text, place = self.read_file(file)
        self.included.add(file, real_path(place), text)
        return self.expand_text(text, place, depth)

    def read_file(self, file: Path) -> tuple[str, Path]:
        """Return a file's own text, and where it stands; note neither as included.

        Raises `UnreadableError`, also if the file is included."""
        real, root = resolve_readable_in_roots(file, self.roots)
        self.included.require_new_file(real)
        text = read_truncated_text(real, max(self.left, 0), root)
        self.left -= len(text.encode())
        self.seen.add(real)
        if (target := _find_checked_out_link(file, text)) is not None:
            self.included.files[real] = target  # else two that name each other would never end
            return self.read_file(target)
        return text, file

    def expand_text(self, text: str, file: Path, depth: int = 0) -> str:
        """Return the text of a file with its imports expanded.

        Raises `AlreadyIncludedError` if it only imports what is included."""
        pieces: list[str] = []
        own = list[str]()
        repeated: AlreadyIncludedError | None = None
        end = 0
        for start, stop, target in find_import_targets(text):
            own.append(text[end:start])
            try:
                imported = self._expand_import(file, target, depth + 1)
            except AlreadyIncludedError as error:
                repeated = repeated or error
                imported = f"@{target} <!-- {error} -->"
            else:
                own.append(imported)
            pieces += [text[end:start], imported]
            end = stop
        if repeated and not "".join([*own, text[end:]]).strip():
            raise repeated
        return "".join([*pieces, text[end:]])

    def _expand_import(self, importing: Path, target: str, depth: int) -> str:
        """Return the text that replaces `@target`: a word that names no file is an ordinary mention."""
        file = self._find_imported_file(importing, target)
        if file is None:
            return f"@{target}"
        try:
            if depth > MAX_DEPTH:
                raise UnreadableError(f"imports nest deeper than {MAX_DEPTH}")
            if self.left <= 0:
                raise UnreadableError("the memory file and its imports are too large")
            text = self.expand_file(file, depth)
        except AlreadyIncludedError:
            raise
        except UnreadableError as error:
            return f"@{target} <!-- not imported: {error} -->"
        return f"\n<!-- from {target} -->\n{text.strip()}\n<!-- end of {target} -->\n"

    def _find_imported_file(self, importing: Path, target: str) -> Path | None:
        """Return the file that a target names: beside the importing file, or where it leads; in a root, if the target
        begins with a slash."""
        if target.startswith("~/"):
            places = [Path(os.path.expanduser(target))]  # noqa: PTH111 - Path's raises
        elif target.startswith("/"):
            places = [Path(target), *(root / target.lstrip("/") for root in self.roots)]
        else:
            places = [importing.parent / target, real_path(importing).parent / target]
        return next((place for place in places if _is_there_and_no_folder(place)), None)


def _is_there_and_no_folder(path: Path) -> bool:
    """Return whether something of this name is there, and no folder."""
    record_read(path)
    try:
        return os.path.lexists(path) and not path.is_dir()
    except (OSError, ValueError):
        return False


_LONGEST_TARGET = 200


def _find_checked_out_link(file: Path, text: str) -> Path | None:
    """Return where a link leads that a checkout without links made a file of: it holds only the target's path."""
    name = text.strip()
    if not name or len(name) > _LONGEST_TARGET or name.split() != [name] or "." not in name:
        return None
    target = file.parent / name
    return target if target != file and _is_there_and_no_folder(target) and name[0] not in "/@" else None


def resolve_readable_in_roots(file: Path, roots: Sequence[Path]) -> tuple[Path, Path]:
    """Return the real path of a file and the real root in `roots` that contains it. Raises `UnreadableError`."""
    try:
        real = real_path(file)
    except (OSError, ValueError):
        raise UnreadableError("not a usable path") from None
    if os.path.islink(real):  # noqa: PTH114 - to itself; a name too long for a link is said when it is opened
        raise UnreadableError("not a usable path")
    root = next((r for r in roots if real.is_relative_to(r)), None)
    if root is None:
        raise UnreadableError("outside the project")
    # Files that tools may not read can't be imported either.
    if find_private_name(real.relative_to(root).parts):
        raise UnreadableError("may hold secrets")
    return real, root


def find_import_targets(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield (start, end, target) for each `@target` at the start of a word, outside code and HTML comments."""
    if "@" not in text:
        return
    lines = text.split("\n")
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    for token in _markdown_parser().parse(text):
        if token.type != "inline" or token.map is None:
            continue
        first, last = token.map
        block = "\n".join(lines[first:last])
        for match in _REFERENCE.finditer(blank_code_spans(block)):
            target = match[1].rstrip(".,;:!?")
            if target:
                start = starts[first] + match.start()
                yield start, start + 1 + len(target), target


def blank_code_spans(block: str) -> str:
    """Replace code spans with blanks, in linear time."""
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
def _markdown_parser() -> "MarkdownIt":
    # Imported lazily: most memory files import nothing.
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark")


_PROBLEM = re.compile(r"(@\S+ )?<!-- (not (?:read|imported): .*?) -->|^\[(Cut here: .*?)\]$", re.MULTILINE)


def first_omission_note(text: str) -> str:
    """Return the first omission noted in a memory file's text, or an empty string."""
    found = _PROBLEM.search(text)
    return f"{found[1] or ''}{found[2] or found[3]}" if found else ""
