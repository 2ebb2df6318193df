"""sources: a workspace's searchable files, cut into chunks by definition (from a grammar), Markdown heading or lines.

Limits are Roo Code's. Unlike there, text between definitions is kept and no text is in two chunks.
"""

import os
import re
import stat
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import NamedTuple

from interlock.services.files.filesystem import sha256
from interlock.services.files.ignore import is_generated_folder
from interlock.services.index.ranking import to_index_columns
from interlock.services.secrets.redaction import Redactor
from interlock.state.text import replace_surrogates
from interlock.state.workspace import FileConventions, PathRefused, Workspace
from interlock.tools.code_definitions import Definition, detect_language, find_definitions
from interlock.tools.file_content import decode_text_file
from interlock.tools.workspace_files import open_regular_file, resolve_file_if_allowed

LEAST, MOST = 50, 1000
"""Characters per chunk; shorter ones are merged with a neighbour or dropped."""
TOLERATED = round(MOST * 1.15)
"""Characters up to which a definition stays whole."""
_LEAST_REST = 200
"""Minimum characters of the last piece when cutting by lines."""
_HEADING = re.compile(r"#{1,6}[ \t]+(.+?)[ \t]*#*[ \t]*$")
_UNDERLINE = re.compile(r"(?:={3,}|-{3,})[ \t]*$")
_FENCE = re.compile(r"[ \t]{0,3}(```|~~~)")
_COMMENT = re.compile(r"\s*(//|/\*|\*|#(?!!|include|define|if|endif)|--|;|'|@|\[)")
"""Starts of lines that belong to the definition directly below: comments and attributes."""


class Chunk(NamedTuple):
    """A range of lines, counted from 1, inclusive."""

    start: int
    end: int
    name: str
    """`Class.method`, a heading, or the enclosing name; empty if there is none."""
    text: str


class _Piece(NamedTuple):
    """Like `Chunk`, but counted from 0, and the end is exclusive."""

    start: int
    end: int
    name: str


def cut_into_chunks(source: bytes, language: str) -> list[Chunk]:
    """Cut a file into chunks, in order. Bytes that aren't UTF-8 are replaced."""
    text = source.decode("utf-8", "replace").replace("\r\n", "\n")
    lines = _Lines(text.split("\n"))
    if language == "markdown":
        pieces = _cut_at_headings(lines)
    else:
        found = find_definitions(source, language)
        whole = _Piece(0, len(lines.lines), "")
        pieces = (
            lines.cut_at_definitions(whole, _nest_definitions(found))
            if found
            else list(lines.cut_by_lines(whole))
        )
    return [chunk for piece in lines.merge_short_pieces(pieces) for chunk in lines.to_chunks(piece)]


class _Tree(NamedTuple):
    definition: Definition
    inner: list["_Tree"]


def _nest_definitions(found: Sequence[Definition]) -> list[_Tree]:
    """Nest definitions; one that begins on the line where its neighbour ends is absorbed by it."""
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
    """The lines of a file, and the size of any range of them."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self._until = [0, *accumulate(len(line) + 1 for line in lines)]

    def character_count(self, start: int, end: int) -> int:
        return self._until[end] - self._until[start]

    def cut_at_definitions(self, scope: _Piece, inner: Sequence[_Tree]) -> list[_Piece]:
        """Cut a scope into its definitions, whole where short enough, and the text between them."""
        pieces: list[_Piece] = []
        at = scope.start
        for definition, deeper in inner:
            start = self._extend_to_comment_above(definition.start - 1, at)
            pieces += self.cut_by_lines(scope._replace(start=at, end=start))
            name = f"{scope.name}.{definition.name}" if scope.name else definition.name
            piece = _Piece(start, definition.end, name)
            if self.character_count(start, definition.end) <= TOLERATED:
                pieces.append(piece)
            else:
                pieces += self.cut_at_definitions(piece, deeper) if deeper else self.cut_by_lines(piece)
            at = definition.end
        return [*pieces, *self.cut_by_lines(scope._replace(start=at))]

    def _extend_to_comment_above(self, start: int, earliest: int) -> int:
        while start > earliest and _COMMENT.match(self.lines[start - 1]):
            start -= 1
        return start

    def cut_by_lines(self, piece: _Piece) -> Iterator[_Piece]:
        """Cut by lines into pieces within the tolerance, except longer single lines; avoids a short last piece."""
        start, stop = piece.start, piece.end
        while start < stop and not self.lines[start].strip():
            start += 1
        while stop - start > 1 and self.character_count(start, stop) > TOLERATED:
            end = start + 1
            while self.character_count(start, end + 1) <= TOLERATED:
                end += 1
            if self.character_count(end, stop) < _LEAST_REST:
                earlier = (e for e in range(end, start, -1) if self.character_count(e, stop) >= _LEAST_REST)
                better = next(earlier, end)
                end = better if self.character_count(start, better) >= LEAST else end
            yield piece._replace(start=start, end=end)
            start = end
        if start < stop:
            yield piece._replace(start=start, end=stop)

    def merge_short_pieces(self, pieces: Sequence[_Piece]) -> Iterator[_Piece]:
        """Merge pieces that are too short with the next one if the result is short enough."""
        waiting: _Piece | None = None
        for piece in pieces:
            if waiting is not None:
                small = min(self._stripped_length(waiting), self._stripped_length(piece)) < LEAST
                if small and self.character_count(waiting.start, piece.end) <= MOST:
                    larger = max(
                        waiting, piece, key=lambda p: (bool(p.name), self.character_count(p.start, p.end))
                    )
                    waiting = larger._replace(start=waiting.start, end=piece.end)
                    continue
                yield waiting
            waiting = piece
        if waiting is not None:
            yield waiting

    def _stripped_length(self, piece: _Piece) -> int:
        return len("\n".join(self.lines[piece.start : piece.end]).strip())

    def to_chunks(self, piece: _Piece) -> Iterator[Chunk]:
        """Yield chunks without blank lines at either end; a line that is too long is split."""
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
            yield Chunk(start + 1, end, piece.name, text[at : at + step])


def _cut_at_headings(lines: _Lines) -> list[_Piece]:
    """Cut at headings, ignoring those in fenced code."""
    starts = [(0, "")]
    fence = ""
    for number, line in enumerate(lines.lines):
        if mark := _FENCE.match(line):
            fence = "" if fence == mark[1] else fence or mark[1]
        elif fence:
            continue
        elif heading := _HEADING.match(line):
            starts.append((number, heading[1]))
        elif number and _UNDERLINE.match(line) and lines.lines[number - 1].strip():
            starts.append((number - 1, lines.lines[number - 1].strip()))
    starts.append((len(lines.lines), ""))
    sections = (_Piece(start, end, name) for (start, name), (end, _) in pairwise(starts))
    return [
        piece for section in sections if section.end > section.start for piece in lines.cut_by_lines(section)
    ]


LARGEST = 1 << 20
"""Maximum size of a file in bytes (Roo Code: 1 MiB)."""
_SETTLED_NS = 2_000_000_000
"""A file modified just before it was read may change again without a new time stamp."""


class Source(NamedTuple):
    """A file as found; the path is relative to the workspace."""

    path: str
    language: str
    signature: str
    """Size, times and inode: unchanged means same bytes. Empty if that isn't reliable yet."""
    inside: str = ""
    """The hidden, ignored or made folder around it, in which only searches that name it look; empty: none."""


class PreparedFile(NamedTuple):
    """A file to be indexed: its chunks with their words and, later, vectors."""

    source: Source
    sha256: str
    chunks: list[Chunk]
    words: list[tuple[str, str, str, str]]
    """`columns` of each chunk."""
    vectors: list[bytes]


def iterate_source_files(workspace: Workspace, named_path: str, stop: Callable[[], None]) -> Iterator[Source]:
    """Yield source files that tools may see: by path all that aren't hidden, ignored or in folders that a build made
    (`is_made`), then those in the folder of that kind that `named_path`, a path, leads to."""
    around = outermost_excluded_folder(workspace, named_path)
    for inside in ("", around) if around else ("",):
        for path in map(
            Path, workspace.list_files(workspace.root / inside, stop=stop, leave_out=_is_excluded)
        ):
            language = detect_language(path)
            if language is not None and (found := _file_signature(path)) is not None:
                yield Source(path.relative_to(workspace.root).as_posix(), language, found, inside)


def outermost_excluded_folder(workspace: Workspace, path: str) -> str:
    """Return the outermost folder or file on the way to a path that searches leave out unless it is named; empty:
    none."""
    at = workspace.root
    for name in Path(path).parts:
        beside, at = _list_names(at), at / name
        if _is_excluded(name, beside, _list_names(at)) or workspace.is_ignored(at):
            return at.relative_to(workspace.root).as_posix()
    return ""


def _list_names(directory: Path) -> set[str]:
    try:
        return set(os.listdir(directory))  # noqa: PTH208 - only names are wanted
    except OSError:
        return set()


def _is_excluded(name: str, siblings: Collection[str], children: Collection[str]) -> bool:
    return name.startswith(".") or is_generated_folder(name, siblings, children)


def _file_signature(path: Path) -> str | None:
    try:
        found = path.lstat()
        str(path).encode()
    except (OSError, UnicodeEncodeError):  # gone, or a name that isn't text
        return None
    if not stat.S_ISREG(found.st_mode) or found.st_size > LARGEST:
        return None
    if time.time_ns() - max(found.st_mtime_ns, found.st_ctime_ns) < _SETTLED_NS:
        return ""
    return f"{found.st_size}.{found.st_mtime_ns}.{found.st_ctime_ns}.{found.st_ino}"


def read_source(workspace: Workspace, path: str) -> bytes | None:
    """Read a file up to the size limit; None if it is gone, too large or not accessible."""
    try:
        if resolve_file_if_allowed(workspace, workspace.root / path, allow_ignored=True) is None:
            return None  # a hard link may be another name of a private file
        with (
            workspace.open_parent_directory(workspace.root / path) as place,
            open_regular_file(place) as file,
        ):
            data = file.read(LARGEST + 1)
    except (OSError, PathRefused):
        return None
    return data if len(data) <= LARGEST else None


def prepare_file_for_index(
    source: Source, data: bytes, redact: Redactor, conventions: FileConventions
) -> PreparedFile:
    """Prepare a file, without its secrets. Binary and unreadable files get no chunks, but are recorded: nothing reads
    them again."""
    file = decode_text_file(data, conventions, source.path)
    text = replace_surrogates(file.text) if file else ""
    found = cut_into_chunks(redact(text, lines=True).encode(), source.language)
    words = [to_index_columns(source.path, chunk.name, chunk.text) for chunk in found]
    return PreparedFile(source, sha256(data), found, words, [])
