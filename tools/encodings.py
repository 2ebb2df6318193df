"""encodings: find out in which encoding a file's bytes are text, and whether that is known or only guessed."""

import codecs
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Literal

from interlock.state.workspace import FileConventions

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
_MOST_EXAMINED = 2_000_000
"""Bytes that the detector examines: it needs 0.1 s for them."""
_LEAST_CONFIDENCE = 0.12
"""A one-byte encoding detected with less is a coin's toss among many: then cp1252 counts, which is most frequent."""
_UNFIT = frozenset(
    ("idna", "punycode", "unicode_escape", "raw_unicode_escape", "undefined", "utf-7", "mbcs", "oem")
)
_SUPERSETS = {
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
    "big5": "big5hkscs",
}
"""Names that people write, and what they often mean by them."""
_WEB_NAMES = {"iso8859-1": "cp1252", "ascii": "cp1252", "iso8859-9": "cp1254"}
"""What browsers read these names as."""
_COOKIE = re.compile(rb"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")
_EMACS = re.compile(rb"-\*-.*?coding:[ \t]*([-\w.]+).*?-\*-")
_META = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([-\w.:]+)", re.IGNORECASE)
_XML = re.compile(rb"^<\?xml[^>]{0,200}?encoding\s*=\s*[\"']([-\w.:]+)[\"']")
_WIDE_XML = (("<?".encode("utf-16-le"), "utf-16-le"), ("<?".encode("utf-16-be"), "utf-16-be"))
_LONGEST_NAME = 40
_MULTIBYTE = re.compile(
    rb"[\xc2-\xdf][\x80-\xbf]|\xe0[\xa0-\xbf][\x80-\xbf]|[\xe1-\xec\xee\xef][\x80-\xbf]{2}|\xed[\x80-\x9f][\x80-\xbf]"
    rb"|\xf0[\x90-\xbf][\x80-\xbf]{2}|[\xf1-\xf3][\x80-\xbf]{3}|\xf4[\x80-\x8f][\x80-\xbf]{2}"
)
"""A character beyond ASCII in UTF-8."""


@dataclass(frozen=True)
class Encoding:
    """How a file's bytes are text."""

    codec: str = "utf-8"
    """Python's name of it."""
    source: str = ""
    """What says so, in words; empty: nothing had to."""
    is_guess: bool = False
    """New text beyond ASCII isn't written in it until a person confirms it."""
    errors: Literal["strict", "surrogateescape", "surrogatepass"] = "strict"
    """`surrogateescape`: UTF-8 but for some bytes, which decoded text has as surrogates."""
    is_lossless: bool = True
    """Whether decoded text encodes to the same bytes; some encodings have two forms of a character."""
    dropped: str = ""
    """A declaration that the bytes contradict, in words; empty: there is none."""

    @property
    def is_plain(self) -> bool:
        """Whether text can be encoded as a whole: else kept characters keep their own bytes."""
        return self.is_lossless and not self.is_guess


@dataclass(frozen=True)
class Decoded:
    raw: str
    encoding: Encoding
    mark: bytes = b""


def find_text_codec(name: str) -> str | None:
    """Return Python's name of a text encoding; None: unknown, or it isn't one that files are written in."""
    plain = name.strip().lower().removesuffix("-bom")
    try:
        found = codecs.lookup(plain) if 0 < len(plain) <= _LONGEST_NAME and plain.isascii() else None
    except (LookupError, ValueError):
        return None
    if found is None or found.name in _UNFIT or not getattr(found, "_is_text_encoding", True):
        return None
    return {"utf-8-sig": "utf-8", "utf-16": "utf-16-le", "utf-32": "utf-32-le"}.get(found.name, found.name)


def find_declared_encoding(data: bytes, file_name: str) -> tuple[str, str] | None:
    """Return the name of the encoding that a file declares in itself, and where; None: it declares none."""
    if xml := _XML.match(data[:_SNIFFED]):
        return xml[1].decode(), "its XML declaration"
    name = file_name.lower()
    if name.endswith((".html", ".htm", ".xhtml")) and (meta := _META.search(data[:_SNIFFED])):
        found = meta[1].decode()
        return _WEB_NAMES.get(find_text_codec(found) or "", found), "its <meta charset>"
    python = name.endswith((".py", ".pyw", ".pyi"))
    if not python and b"-*-" not in data[:_SNIFFED]:
        return None
    for line in data[:_SNIFFED].split(b"\n", 2)[:2]:
        if cookie := (_COOKIE.match(line) if python else None) or _EMACS.search(line):
            return cookie[1].decode().removesuffix("-unix").removesuffix("-dos"), "its coding line"
        if python and line.strip() and not line.lstrip().startswith(b"#"):
            return None
    return None


def decode_bytes(data: bytes, conventions: FileConventions, file_name: str) -> Decoded | None:
    """Return a file's text and encoding; None: it isn't text."""
    for mark, codec in _MARKS:
        if data.startswith(mark):
            return _decode_with_mark(data[len(mark) :], mark, codec)
    dropped: list[str] = []
    found = _decode_without_mark(data, conventions, file_name, dropped)
    return found and replace(found, encoding=replace(found.encoding, dropped="; ".join(dropped)))


def _decode_with_mark(body: bytes, mark: bytes, codec: str) -> Decoded | None:
    """Return the text after a byte order mark; None: it isn't text."""
    if codec == "utf-8":
        found = None if b"\0" in body else _decode_if_valid(body, codec, "") or _decode_escaping_bytes(body)
        return found and replace(found, mark=mark)
    for errors in ("strict", "surrogatepass"):
        with suppress(UnicodeDecodeError):
            raw = body.decode(codec, errors)
            encoding = Encoding(codec, "its byte order mark", errors=errors)
            return None if "\0" in raw else Decoded(raw, encoding, mark)
    return None


def _decode_without_mark(
    data: bytes, conventions: FileConventions, file_name: str, dropped: list[str]
) -> Decoded | None:
    """Return the text of a file that has no byte order mark; None: it isn't text. Append to `dropped`."""
    declared = find_declared_encoding(data, file_name)
    if wide := next((codec for start, codec in _WIDE_XML if data.startswith(start)), None):
        declared = (wide, "its XML declaration")
    git = (conventions.working_tree_encoding, ".gitattributes")
    if found := _decode_as_named(data, [*([declared] if declared else []), git], dropped):
        return found
    if b"\0" in data or data.startswith(b"%PDF-"):
        return None
    named = [(conventions.confirmed_encoding, "files.encodings"), (conventions.charset, ".editorconfig")]
    if data.isascii():
        return _decode_as_named(data, named, dropped) or Decoded(data.decode(), Encoding())
    if found := _decode_if_valid(data, "utf-8", ""):
        return found
    sample = data[:_SNIFFED]
    if sum(1 for byte in sample if byte in _CONTROLS) > len(sample) * _MOST_CONTROLS:
        return None
    return _decode_damaged_utf8(data) or _decode_as_named(data, named, dropped) or _decode_by_guess(data)


def _decode_as_named(data: bytes, named: list[tuple[str, str]], dropped: list[str]) -> Decoded | None:
    """Return the text by the first of these encodings that the bytes allow. Append those that they contradict."""
    for name, source in named:
        if not name:
            continue
        codec = find_text_codec(name)
        for one in (codec, _SUPERSETS.get(codec or "")):
            if (
                one
                and (b"\0" in data) == one.startswith(("utf-16", "utf-32"))
                and (found := _decode_if_valid(data, one, source))
            ):
                return found
        why = "which its bytes contradict" if codec else "which is unknown"
        dropped.append(f"{source} says {name!r}, {why}")
    return None


def _decode_if_valid(data: bytes, codec: str, source: str) -> Decoded | None:
    """Return the text by one encoding; None: the bytes contradict it, or hold NUL."""
    try:
        raw = data.decode(codec)
        lossless = codec == "utf-8" or raw.encode(codec) == data
    except (UnicodeError, OverflowError):
        return None
    if "\0" in raw:
        return None
    return Decoded(raw, Encoding(codec, "" if codec == "utf-8" else source, is_lossless=lossless))


def _decode_damaged_utf8(data: bytes) -> Decoded | None:
    """Return text that is UTF-8 but for a few bytes: it has at least as many characters beyond ASCII as bad bytes."""
    good = len(_MULTIBYTE.findall(data))
    if not good:
        return None
    found = _decode_escaping_bytes(data)
    return found if sum("\udc80" <= sign <= "\udcff" for sign in found.raw) <= good else None


def _decode_escaping_bytes(data: bytes) -> Decoded:
    """Return UTF-8 text with a surrogate for each byte that isn't UTF-8."""
    return Decoded(data.decode(errors="surrogateescape"), Encoding(errors="surrogateescape"))


def _decode_by_guess(data: bytes) -> Decoded:
    """Return the text by the likeliest encoding that the bytes allow."""
    for codec in _iterate_likely_codecs(data):
        if (found := _decode_if_valid(data, codec, "a guess from its bytes")) is not None:
            return replace(found, encoding=replace(found.encoding, is_guess=True))
    guessed = Encoding("iso8859-1", "a guess from its bytes", is_guess=True)
    return Decoded(data.decode("latin-1"), guessed)


def _iterate_likely_codecs(data: bytes) -> Iterator[str]:
    """Yield encodings that the bytes may be in, the likeliest first."""
    from chardet import detect_all
    from chardet.enums import EncodingEra

    found = detect_all(
        data[:_MOST_EXAMINED],
        encoding_era=EncodingEra.MODERN_WEB,
        prefer_superset=True,
        compat_names=False,
        max_bytes=_MOST_EXAMINED,
    )
    likely = {str(one["encoding"]): one["confidence"] for one in found if one["encoding"]}
    best = next(iter(likely), "cp1252")
    one_byte = best.startswith(("cp125", "iso8859", "cp874")) and best != "cp1252"
    if one_byte and likely[best] < _LEAST_CONFIDENCE and likely.get("cp1252", 0) >= likely[best] / 2:
        yield "cp1252"
    yield from filter(None, map(find_text_codec, likely))
    yield "cp1252"
