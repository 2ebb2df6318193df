"""file_content: convert text files to text and back, keeping encoding, BOM and line endings; page them to fit a model's
window; turn pictures and PDFs, recognised by their bytes, into parts for models."""

import base64
import mimetypes
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from interlock.state.messages import DataPart

# Longest first: the UTF-32 BOM starts with the UTF-16 one.
_MARKS = (
    (b"\xff\xfe\x00\x00", "utf-32-le"),
    (b"\x00\x00\xfe\xff", "utf-32-be"),
    (b"\xef\xbb\xbf", "utf-8"),
    (b"\xff\xfe", "utf-16-le"),
    (b"\xfe\xff", "utf-16-be"),
)
_SNIFFED = 8192
_CONTROLS = frozenset(range(32)) - frozenset(b"\t\n\r\f\v\b\x1b")
_MOST_CONTROLS = 0.1
"""Share of control characters above which bytes without NUL are considered binary."""


@dataclass(frozen=True)
class TextFile:
    """A decoded file. `raw` has the original line endings, without the BOM."""

    raw: str
    encoding: str = "utf-8"
    mark: bytes = b""

    @cached_property
    def text(self) -> str:
        """The text with LF line endings: what models read and match against."""
        return self.raw.replace("\r\n", "\n")

    @cached_property
    def newline(self) -> str:
        """The most common line ending."""
        crlf = self.raw.count("\r\n")
        return "\r\n" if crlf > self.raw.count("\n") - crlf else "\n"

    def encode(self, raw: str) -> bytes:
        """Encode other text in this file's encoding. Raises `UnicodeEncodeError` if it can't represent it."""
        return self.mark + raw.encode(self.encoding)

    def convert_line_endings(self, text: str) -> str:
        """Return `text` with this file's line endings."""
        plain = text.replace("\r\n", "\n")
        return plain.replace("\n", self.newline) if self.newline != "\n" else plain

    def replace_spans(self, spans: Sequence[tuple[int, int, str]]) -> str:
        """Return `raw` with spans (start, end, new) of `text` replaced; everything else is kept byte for byte."""
        ends: list[int] = []
        place = self.raw.find("\r\n")
        while place >= 0:
            ends.append(place - len(ends))
            place = self.raw.find("\r\n", place + 2)

        def at(offset: int) -> int:
            return offset + bisect_left(ends, offset)  # `ends`: of the lines that end with CRLF, in `text`

        pieces: list[str] = []
        done = 0
        for start, end, new in spans:
            pieces += [self.raw[done : at(start)], self.convert_line_endings(new)]
            done = at(end)
        return "".join([*pieces, self.raw[done:]])


def decode_text_file(data: bytes) -> TextFile | None:
    """Decode as UTF-8, as UTF-16/32 if there is a BOM, else as Latin-1, which accepts any bytes; None: not text."""
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            body = data[len(mark) :]
            try:
                raw = body.decode(encoding)
            except UnicodeDecodeError:
                return None
            return None if "\0" in raw else TextFile(raw, encoding, mark)
    if b"\0" in data or data.startswith(b"%PDF-"):
        return None
    try:
        return TextFile(data.decode())
    except UnicodeDecodeError:
        sample = data[:_SNIFFED]
        if sum(1 for byte in sample if byte in _CONTROLS) > len(sample) * _MOST_CONTROLS:
            return None
        return TextFile(data.decode("latin-1"), "latin-1")


def split_lines(text: str) -> list[str]:
    """Return lines as editors count them: only LF ends a line, and a final LF doesn't start another."""
    lines = text.split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def line_number_at(text: str, offset: int) -> int:
    """1-based number of the line containing `offset`."""
    return text.count("\n", 0, offset) + 1


MOST_LINES = 2000
"""Lines shown by default (gemini-cli: 2,000)."""
MOST_COLUMNS = 2000
"""Characters shown per line (gemini-cli: 2,000)."""
MOST_CHARS = 200_000
"""Characters shown in total: about 50,000 tokens, so that one result can't fill a window."""


def truncate_line(line: str, max_chars: int = MOST_COLUMNS, suffix: str = "... [truncated]") -> str:
    """Return a line as it is shown: cut, with a mark behind it, if it has more than `max_chars` characters."""
    return line if len(line) <= max_chars else line[:max_chars] + suffix


@dataclass(frozen=True)
class TextPage:
    """Lines `first` to `last` (1-based) of `total`; `cut` of them were truncated."""

    text: str
    first: int
    last: int
    total: int
    cut: int

    @property
    def is_whole(self) -> bool:
        """Whether the page has all lines of the text."""
        return self.first == 1 and self.last == self.total


def extract_text_page(
    text: str, start: int = 1, end: int | None = None, max_chars: int = MOST_CHARS
) -> TextPage:
    """Return the page of lines from `start` on; without `end`, at most 2,000. `start` must not be past the end of the
    text."""
    lines = split_lines(text)
    wanted = lines[start - 1 : start - 1 + MOST_LINES if end is None else end]
    shown: list[str] = []
    used = cut = 0
    for line in wanted:
        short = truncate_line(line)
        if shown and used + len(short) + 1 > max_chars:
            break
        cut += short is not line
        used += len(short) + 1
        shown.append(short)
    return TextPage("\n".join(shown), start, start + len(shown) - 1, len(lines), cut)


def omitted_lines_heading(page: TextPage) -> str:
    """Return a line in square brackets that says what a page leaves out and how to get it; empty if nothing."""
    notes: list[str] = []
    if not page.is_whole:
        notes.append(f"Lines {page.first}-{page.last} of {page.total}.")
        if page.last < page.total:
            notes.append(f"To go on, read from start_line={page.last + 1}.")
    if page.cut:
        lines = "1 line was" if page.cut == 1 else f"{page.cut} lines were"
        notes.append(f"{lines} cut at {MOST_COLUMNS} characters.")
    return f"[{' '.join(notes)}]\n" if notes else ""


def binary_file_notice(display_path: str, size: int) -> str:
    """Return the message for a file that isn't text."""
    mime = mimetypes.guess_type(display_path)[0] or ""
    kind = {"image": "an image", "audio": "a sound file", "video": "a video"}.get(
        mime.partition("/")[0], "binary"
    )
    known = f" ({mime})" if mime else ""
    return f"[{display_path!r} is {kind}{known} of {size} bytes; its content can't be shown as text.]"


LARGEST_MEDIA = 10 * 1024 * 1024
"""Largest picture or PDF sent, in bytes: as base64 it must fit into a 20 MB request (Gemini's limit)."""
_MEDIA = (
    (b"\x89PNG\r\n\x1a\n", 0, "image/png"),
    (b"\xff\xd8\xff", 0, "image/jpeg"),
    (b"GIF87a", 0, "image/gif"),
    (b"GIF89a", 0, "image/gif"),
    (b"WEBP", 8, "image/webp"),
    (b"ftypheic", 4, "image/heic"),
    (b"ftypheif", 4, "image/heif"),
    (b"ftypmif1", 4, "image/heif"),
    (b"%PDF-", 0, "application/pdf"),
)


def _is_picture_or_pdf_name(name: str) -> bool:
    """Return whether a file's name looks like a picture or PDF."""
    mime = mimetypes.guess_type(name)[0] or ""
    return (mime.startswith("image/") and mime != "image/svg+xml") or mime == "application/pdf"


def to_media_part_or_notice(display_path: str, data: bytes) -> DataPart | str | None:
    """The part, or a line saying why there is none; None: neither content nor name is a picture or PDF."""
    mime = next((mime for mark, at, mime in _MEDIA if data[at : at + len(mark)] == mark), "")
    if not mime:
        if not _is_picture_or_pdf_name(display_path):
            return None
        return (
            f"[{display_path!r} is named like a picture or PDF, but its bytes are none that models take "
            "(PNG, JPEG, GIF, WebP, HEIC, PDF); it isn't shown.]"
        )
    if len(data) > LARGEST_MEDIA:
        has = f"{display_path!r} has {len(data)} bytes"
        return f"[{has}, more than the {LARGEST_MEDIA} that can be shown; make it smaller.]"
    kind = "image" if mime.startswith("image/") else "file"
    return DataPart(type=kind, mime_type=mime, data=base64.b64encode(data).decode())


def media_placeholder(display_path: str, part: DataPart, size: int) -> str:
    """Return text in place of the part, for people and for models that can't see it."""
    kind = "picture" if part.type == "image" else "PDF"
    return f"[{display_path!r}: {kind} ({part.mime_type}, {size} bytes), shown beside this text.]"
