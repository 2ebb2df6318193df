"""sources: the files of a workspace that can be searched, cut into chunks: definitions by grammar, Markdown by heading,
the rest by lines.

The limits are Roo Code's. Unlike there what stands between definitions is kept, and nothing is in two pieces.
"""

import re
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import NamedTuple

from interlock.services.files.filesystem import sha256
from interlock.services.index.ranking import columns
from interlock.state.tooling import PathRefused, Workspace
from interlock.tools._opening import open_file
from interlock.tools._syntax import Definition, definitions, language_of

LEAST, MOST = 50, 1000
"""Characters of a chunk: what is shorter joins its neighbour, or is left out."""
TOLERATED = round(MOST * 1.15)
"""Characters up to which a definition stays whole."""
_LEAST_REST = 200
"""Characters that the last piece of what is cut by lines should have."""
_HEADING = re.compile(r"(#{1,6})[ \t]+(.+?)[ \t]*#*[ \t]*$")
_UNDERLINE = re.compile(r"(={3,}|-{3,})[ \t]*$")
_FENCE = re.compile(r"[ \t]{0,3}(```|~~~)")
_COMMENT = re.compile(r"\s*(//|/\*|\*|#(?!!|include|define|if|endif)|--|;|'|@|\[)")
"""How lines begin that belong to the definition right below them: comments and attributes."""


class Chunk(NamedTuple):
    """Lines count from 1, both are its own."""

    start: int
    end: int
    kind: str
    """Node type of the grammar, `markdown_header_h2`, or `lines`."""
    name: str
    """`Class.method`, a heading, or what it is a part of; empty: neither."""
    text: str


class _Piece(NamedTuple):
    """As `Chunk`, lines from 0 and the end not its own."""

    start: int
    end: int
    kind: str
    name: str


def chunks(source: bytes, language: str) -> list[Chunk]:
    """In the order of the file. Bytes that aren't UTF-8 are replaced."""
    text = source.decode("utf-8", "replace").replace("\r\n", "\n")
    lines = _Lines(text.split("\n"))
    if language == "markdown":
        pieces = _sections(lines)
    else:
        found = definitions(source, language)
        whole = _Piece(0, len(lines.lines), "lines", "")
        pieces = lines.inside(whole, _nested(found)) if found else list(lines.cut(whole))
    return [chunk for piece in lines.joined(pieces) for chunk in lines.chunks(piece)]


class _Tree(NamedTuple):
    definition: Definition
    inner: list["_Tree"]


def _nested(found: Sequence[Definition]) -> list[_Tree]:
    """One that begins on a line on which its neighbour ends is a part of that one."""
    top: list[_Tree] = []
    path: list[_Tree] = []
    for definition in found:
        while path and definition.start > path[-1].definition.end:
            path.pop()
        outer = path[-1] if path else None
        if outer is not None and (
            definition.end > outer.definition.end or definition.start == outer.definition.start
        ):
            continue
        siblings = outer.inner if outer else top
        if siblings and definition.start <= siblings[-1].definition.end:
            continue
        siblings.append(_Tree(definition, []))
        path.append(siblings[-1])
    return top


class _Lines:
    """The lines of a file, and how long each stretch of them is."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self._until = [0, *accumulate(len(line) + 1 for line in lines)]

    def size(self, start: int, end: int) -> int:
        return self._until[end] - self._until[start]

    def inside(self, scope: _Piece, inner: Sequence[_Tree]) -> list[_Piece]:
        """The definitions of a scope, each whole if it is short enough, and what stands between them."""
        pieces: list[_Piece] = []
        at = scope.start
        for definition, deeper in inner:
            start = self._with_comment(definition.start - 1, at)
            pieces += self.cut(scope._replace(start=at, end=start))
            name = f"{scope.name}.{definition.name}" if scope.name else definition.name
            piece = _Piece(start, definition.end, definition.kind, name)
            if self.size(start, definition.end) <= TOLERATED:
                pieces.append(piece)
            else:
                pieces += self.inside(piece, deeper) if deeper else self.cut(piece)
            at = definition.end
        return [*pieces, *self.cut(scope._replace(start=at))]

    def _with_comment(self, start: int, first: int) -> int:
        while start > first and _COMMENT.match(self.lines[start - 1]):
            start -= 1
        return start

    def cut(self, piece: _Piece) -> Iterator[_Piece]:
        """By lines, none longer than tolerated but for a line that is; the last one isn't left too short."""
        start, stop = piece.start, piece.end
        while start < stop and not self.lines[start].strip():
            start += 1
        while stop - start > 1 and self.size(start, stop) > TOLERATED:
            end = start + 1
            while self.size(start, end + 1) <= TOLERATED:
                end += 1
            if self.size(end, stop) < _LEAST_REST:
                earlier = (e for e in range(end, start, -1) if self.size(e, stop) >= _LEAST_REST)
                better = next(earlier, end)
                end = better if self.size(start, better) >= LEAST else end
            yield piece._replace(start=start, end=end)
            start = end
        if start < stop:
            yield piece._replace(start=start, end=stop)

    def joined(self, pieces: Sequence[_Piece]) -> Iterator[_Piece]:
        """What is too short joins what follows it, if that leaves a chunk that is short enough."""
        waiting: _Piece | None = None
        for piece in pieces:
            if waiting is not None:
                small = min(self._filled(waiting), self._filled(piece)) < LEAST
                if small and self.size(waiting.start, piece.end) <= MOST:
                    larger = max(waiting, piece, key=lambda p: (bool(p.name), self.size(p.start, p.end)))
                    waiting = larger._replace(start=waiting.start, end=piece.end)
                    continue
                yield waiting
            waiting = piece
        if waiting is not None:
            yield waiting

    def _filled(self, piece: _Piece) -> int:
        return len("\n".join(self.lines[piece.start : piece.end]).strip())

    def chunks(self, piece: _Piece) -> Iterator[Chunk]:
        """Without blank lines at its ends; a line that is too long in segments."""
        start, end = piece.start, piece.end
        while end > start and not self.lines[end - 1].strip():
            end -= 1
        while start < end and not self.lines[start].strip():
            start += 1
        text = "\n".join(self.lines[start:end])
        if len(text.strip()) < LEAST:
            return
        step = MOST if len(text) > TOLERATED else len(text)
        for at in range(0, len(text), step):
            yield Chunk(start + 1, end, piece.kind, piece.name, text[at : at + step])


def _sections(lines: _Lines) -> list[_Piece]:
    """From each heading to the next; code in fences holds none."""
    starts: list[tuple[int, str, str]] = [(0, "markdown_content", "")]
    fence = ""
    for number, line in enumerate(lines.lines):
        if mark := _FENCE.match(line):
            fence = "" if fence == mark[1] else fence or mark[1]
        elif fence:
            continue
        elif heading := _HEADING.match(line):
            starts.append((number, f"markdown_header_h{len(heading[1])}", heading[2]))
        elif number and (under := _UNDERLINE.match(line)) and lines.lines[number - 1].strip():
            level = 1 if under[1].startswith("=") else 2
            starts.append((number - 1, f"markdown_header_h{level}", lines.lines[number - 1].strip()))
    starts.append((len(lines.lines), "", ""))
    sections = (_Piece(start, end, kind, name) for (start, kind, name), (end, *_) in pairwise(starts))
    return [piece for section in sections if section.end > section.start for piece in lines.cut(section)]


LARGEST = 1 << 20
"""Bytes of a file (Roo Code: 1 MiB)."""
_MADE = frozenset(
    {
        *("node_modules", "__pycache__", "env", "venv", "target", "dist", "out", "bundle"),
        *("vendor", "tmp", "temp", "deps", "pods"),
    }
)
"""Folders of what is made or fetched (Roo Code's list, but for `pkg`, where Go keeps its own code)."""
_SETTLED_NS = 2_000_000_000
"""A file that changed just before it was looked at may change again without another time stamp."""


class Source(NamedTuple):
    """A file as it was found; the path is relative to the workspace."""

    path: str
    language: str
    signature: str
    """Size, times and inode: while it is the same, so are the bytes. Empty: that can't be relied upon."""


class Indexed(NamedTuple):
    """A file as it goes into the index: its chunks, each with its words and, later, its vector."""

    source: Source
    sha256: str
    chunks: list[Chunk]
    words: list[tuple[str, str, str, str]]
    """`columns` of each chunk."""
    vectors: list[bytes]


def sources(workspace: Workspace, stop: Callable[[], None]) -> Iterator[Source]:
    """Sorted by path. Hidden ones, those that tools may not see, and what isn't source text don't count."""
    for path in workspace.walk(workspace.root, stop=stop, leave_out=_left_out):
        language = language_of(path)
        if language is not None and (found := _signature(path)) is not None:
            yield Source(path.relative_to(workspace.root).as_posix(), language, found)


def _left_out(name: str) -> bool:
    return name.startswith(".") or name.lower() in _MADE


def _signature(path: Path) -> str | None:
    try:
        found = path.lstat()
        str(path).encode()
    except (OSError, UnicodeEncodeError):  # gone meanwhile, or a name that isn't text
        return None
    if not stat.S_ISREG(found.st_mode) or found.st_size > LARGEST:
        return None
    if time.time_ns() - max(found.st_mtime_ns, found.st_ctime_ns) < _SETTLED_NS:
        return ""
    return f"{found.st_size}.{found.st_mtime_ns}.{found.st_ctime_ns}.{found.st_ino}"


def read(workspace: Workspace, path: str) -> bytes | None:
    """The bytes of a file, up to the largest; None: it is gone, or not for us."""
    try:
        with workspace.place(workspace.root / path) as place, open_file(place) as file:
            data = file.read(LARGEST + 1)
    except (OSError, PathRefused):
        return None
    return data if len(data) <= LARGEST else None


def indexed(source: Source, data: bytes) -> Indexed:
    """Binary files, and those that can't be read, have no chunks; they are remembered, and not read again."""
    found = [] if b"\0" in data else chunks(data, source.language)
    words = [columns(source.path, chunk.name, chunk.text) for chunk in found]
    return Indexed(source, sha256(data), found, words, [])
