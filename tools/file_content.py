"""file_content: convert text files to text and back, keeping encoding, BOM and line endings; page them to fit a model's
window; turn pictures and PDFs, recognised by their bytes, into parts for models."""

import base64
import codecs
import json
import mimetypes
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property

from interlock.state.file_names import quote_name
from interlock.state.messages import DataPart
from interlock.state.text import replace_surrogates
from interlock.state.workspace import NO_CONVENTIONS, FileConventions
from interlock.tools.encodings import Encoding, decode_bytes

_UTF_8 = Encoding()

_PLACEHOLDER = "\ufffd"
"""Stands in a text for a byte that isn't UTF-8."""
_MOST_COMPARED = 200_000_000
"""Product of two texts' lengths up to which they are compared: 25 MB and a few ms."""


class TextNotWritable(ValueError):  # noqa: N818 - a refusal, not a fault
    """Text that a file's encoding can't hold, or must not, as it is a guess. The message begins with the file."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind


@dataclass(frozen=True)
class TextFile:
    """A decoded file. `raw` has the original line endings, without the BOM; bytes that can't be decoded are surrogates.

    Kept characters keep their bytes, whatever becomes of others. Only of equal neighbours with different bytes can
    the other one stay.
    """

    raw: str
    encoding: Encoding = _UTF_8
    mark: bytes = b""
    body: bytes = field(default=b"", repr=False)
    """The file's bytes without the BOM; only needed where `encoding` isn't plain."""
    name: str = ""
    line_end: str = ""
    """Line ending of a file that has none yet; empty: LF."""

    @cached_property
    def text(self) -> str:
        """The text with LF line endings: what models read and match against."""
        plain = self.raw.replace("\r\n", "\n")
        plain = plain.replace("\r", "\n") if self.newline == "\r" else plain
        return hide_escaped_bytes(plain) if self.encoding.errors == "surrogateescape" else plain

    @cached_property
    def newline(self) -> str:
        """The most common line ending. CR is one only in a file without LF."""
        crlf = self.raw.count("\r\n")
        lf = self.raw.count("\n")
        if not lf:
            return "\r" if "\r" in self.raw else self.line_end or "\n"
        return "\r\n" if crlf > lf - crlf else "\n"

    def encode(self, raw: str) -> bytes:
        """Encode other text in this file's encoding. Raise `TextNotWritable` if it can't, or must not, represent it."""
        if self.encoding.errors == "surrogateescape" and raw.count(_PLACEHOLDER) > self.raw.count(
            _PLACEHOLDER
        ):
            why = f"has bytes that aren't text, shown as {_PLACEHOLDER!r}; leave those where they are, and write none."
            raise TextNotWritable("not_text", why)
        pieces = self._encode_text(raw) if self.encoding.is_plain else b"".join(self._encode_pieces(raw))
        with suppress(
            UnicodeDecodeError
        ):  # of an encoding in which characters depend on what stands before them
            if self.decode(self.mark + pieces) == raw:
                return self.mark + pieces
        why = "would have other characters around the change; change whole lines, or use a command."
        raise TextNotWritable("not_text", why)

    def decode(self, data: bytes) -> str:
        """Decode other bytes of this file, with its BOM."""
        return data[len(self.mark) :].decode(self.encoding.codec, self.encoding.errors)

    def _encode_pieces(self, raw: str) -> Iterator[bytes]:
        """Yield the bytes of kept characters as they are, and those of new ones."""
        for start, end, new_start, new_end, is_same in compare_texts(self.raw, raw):
            new = raw[new_start:new_end]
            if is_same:
                yield self._kept_bytes(start, end)
            elif self.encoding.is_guess and not new.isascii():
                sign = next(sign for sign in new if not sign.isascii())
                raise TextNotWritable("encoding_guessed", _explain_guessed_encoding(self, sign))
            else:
                yield self._encode_text(new)

    def _encode_text(self, text: str) -> bytes:
        try:
            return text.encode(self.encoding.codec, self.encoding.errors)
        except UnicodeEncodeError as error:
            sign = text[error.start]
            why = (
                f"is {self.encoding.codec}, which can't hold {sign!r}; write it with characters that it can."
            )
            raise TextNotWritable("not_text", why) from error

    def _kept_bytes(self, start: int, end: int) -> bytes:
        if self.encoding.is_lossless:
            return self.raw[start:end].encode(self.encoding.codec, self.encoding.errors)
        return self.body[self._byte_offsets[start] : self._byte_offsets[end]]

    @cached_property
    def _byte_offsets(self) -> "array[int]":
        """Where each character begins in `body`."""
        offsets, decoder = array("Q", [0]), codecs.getincrementaldecoder(self.encoding.codec)()
        for end in range(1, len(self.body) + 1):
            offsets.extend([end] * len(decoder.decode(self.body[end - 1 : end])))
        offsets[-1] = len(self.body)  # bytes at the end that are no character, such as an escape sequence
        return offsets

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
            kept = self.raw[at(start) : at(end)]
            pieces += [
                self.raw[done : at(start)],
                self._restore_escaped_bytes(kept, self.convert_line_endings(new)),
            ]
            done = at(end)
        return "".join([*pieces, self.raw[done:]])

    def _restore_escaped_bytes(self, old: str, new: str) -> str:
        """Return `new` with the bytes of `old` that a model could only see as placeholders, where it kept them."""
        if self.encoding.errors != "surrogateescape":
            return new
        new = replace_surrogates(new)
        shown = hide_escaped_bytes(old)
        if shown.count(_PLACEHOLDER) == new.count(_PLACEHOLDER):
            kept = (one for one, sign in zip(old, shown, strict=True) if sign == _PLACEHOLDER)
            return "".join(next(kept) if sign == _PLACEHOLDER else sign for sign in new)
        rows = compare_texts(shown, new)
        return "".join(old[i:j] if is_same else new[k:m] for i, j, k, m, is_same in rows)


_ESCAPED = dict.fromkeys(range(0xDC80, 0xDD00), _PLACEHOLDER)


def hide_escaped_bytes(raw: str) -> str:
    """Return a text with U+FFFD for each byte that isn't UTF-8."""
    return raw.translate(_ESCAPED)


def alike_files_pattern(name: str) -> str:
    """Return the pattern of files that probably have the same encoding as one: those with its suffix."""
    last = name.rpartition("/")[2]
    suffix = last[last.rfind(".") :] if "." in last[1:] else ""
    return f"*{suffix}" if suffix else last


def _explain_guessed_encoding(file: TextFile, sign: str) -> str:
    """Return why new text isn't written; the sentence begins with the file."""
    codec, source = file.encoding.codec, file.encoding.source
    confirmed = json.dumps({alike_files_pattern(file.name): codec})
    return (
        f"is taken for {codec}, which is {source}; so {sign!r} isn't written, as it would be wrong bytes in another"
        " encoding. Write it in ASCII, or ask the user to confirm the encoding with the setting files.encodings, such"
        f" as {confirmed}."
    )


def compare_texts(old: str, new: str) -> Iterator[tuple[int, int, int, int, bool]]:
    """Yield pieces of two texts in order: (start, end) in each, and whether they are the same."""
    olds, news = old.splitlines(keepends=True), new.splitlines(keepends=True)
    least = min(len(olds), len(news))
    first = next((n for n in range(least) if olds[n] != news[n]), least)
    last = next((n for n in range(least - first) if olds[-1 - n] != news[-1 - n]), least - first)
    head, tail = sum(map(len, olds[:first])), sum(map(len, olds[len(olds) - last :]))
    if head:
        yield 0, head, 0, head, True
    old_end, new_end = len(old) - tail, len(new) - tail
    yield from _compare_lines(olds[first : len(olds) - last], news[first : len(news) - last], head)
    if tail:
        yield old_end, len(old), new_end, len(new), True


def _compare_lines(
    olds: Sequence[str], news: Sequence[str], at: int
) -> Iterator[tuple[int, int, int, int, bool]]:
    """Yield the pieces of lines whose texts begin at the same place."""
    old_at = new_at = at
    for old_from, old_to, new_from, new_to, is_same in _common_parts(olds, news):
        old, new = "".join(olds[old_from:old_to]), "".join(news[new_from:new_to])
        rows = ((0, len(old), 0, len(new), True),) if is_same else _common_parts(old, new)
        for start, end, new_start, new_end, same in rows:
            yield old_at + start, old_at + end, new_at + new_start, new_at + new_end, same
        old_at, new_at = old_at + len(old), new_at + len(new)


def _common_parts(old: Sequence[str], new: Sequence[str]) -> Iterator[tuple[int, int, int, int, bool]]:
    """Yield ranges of lines or characters, and whether they are the same; if there are too many, all are different."""
    from rapidfuzz.distance import LCSseq

    blocks = [] if len(old) * len(new) > _MOST_COMPARED else LCSseq.opcodes(old, new).as_matching_blocks()
    at = new_at = 0
    for start, new_start, size in [*blocks, (len(old), len(new), 0)]:
        if (at, new_at) != (start, new_start):
            yield at, start, new_at, new_start, False
        at, new_at = start + size, new_start + size
        if size:
            yield start, at, new_start, new_at, True


def decode_text_file(
    data: bytes, conventions: FileConventions = NO_CONVENTIONS, name: str = ""
) -> TextFile | None:
    """Decode a file by its byte order mark, what it or its project says, as UTF-8, else by a guess; None: not text."""
    found = decode_bytes(data, conventions, name)
    if found is None:
        return None
    body = data[len(found.mark) :]
    return TextFile(found.raw, found.encoding, found.mark, body, name, conventions.line_end)


def decode_text_start(data: bytes, conventions: FileConventions, name: str) -> TextFile | None:
    """Decode the first bytes of a longer file, whose last character may be cut in two; None: not text."""
    whole_lines = data[: data.rfind(b"\n") + 1] or data
    is_wide = b"\0" in data
    found = decode_text_file(data[: len(data) - len(data) % 4] if is_wide else whole_lines, conventions, name)
    return found and replace(found, raw=data[len(found.mark) :].decode(found.encoding.codec, "replace"))


def encoding_label(encoding: Encoding) -> str:
    """Return a file's encoding for people; empty if it is plain UTF-8."""
    if encoding.codec == "utf-8":
        return "UTF-8 but for some bytes" if encoding.errors == "surrogateescape" else ""
    return f"{encoding.codec}, a guess" if encoding.is_guess else encoding.codec


def encoding_heading(file: TextFile) -> str:
    """Return a line in square brackets that says how a file's bytes are text; empty if they are plain UTF-8."""
    encoding, notes = file.encoding, list[str]()
    if encoding.codec != "utf-8":
        notes.append(f"Encoding: {encoding.codec} ({encoding.source}).")
    if encoding.is_guess:
        notes.append("New text beyond ASCII isn't written until the user confirms it.")
    if encoding.errors == "surrogateescape":
        count = sum("\udc80" <= sign <= "\udcff" for sign in file.raw)
        bytes_are = "1 byte isn't" if count == 1 else f"{count} bytes aren't"
        notes.append(f"{bytes_are} UTF-8, shown as {_PLACEHOLDER}; edits leave them as they are.")
    if encoding.dropped:
        notes.append(f"But {encoding.dropped}.")
    return f"[{' '.join(notes)}]\n" if notes else ""


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
    return (
        f"[{quote_name(display_path)} is {kind}{known} of {size} bytes; its content can't be shown as text.]"
    )


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
            f"[{quote_name(display_path)} is named like a picture or PDF, but its bytes are none that models take "
            "(PNG, JPEG, GIF, WebP, HEIC, PDF); it isn't shown.]"
        )
    if len(data) > LARGEST_MEDIA:
        has = f"{quote_name(display_path)} has {len(data)} bytes"
        return f"[{has}, more than the {LARGEST_MEDIA} that can be shown; make it smaller.]"
    kind = "image" if mime.startswith("image/") else "file"
    return DataPart(type=kind, mime_type=mime, data=base64.b64encode(data).decode())


def media_placeholder(display_path: str, part: DataPart, size: int) -> str:
    """Return text in place of the part, for people and for models that can't see it."""
    kind = "picture" if part.type == "image" else "PDF"
    return f"[{quote_name(display_path)}: {kind} ({part.mime_type}, {size} bytes), shown beside this text.]"
