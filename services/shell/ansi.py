"""ansi: the value of `$'…'`."""

import re

_ESCAPES = {
    "n": "\n",
    "t": "\t",
    "a": "\a",
    "b": "\b",
    "e": "\x1b",
    "E": "\x1b",
    "f": "\f",
    "r": "\r",
    "v": "\v",
}
_ESCAPE = re.compile(r"\\(?:([0-7]{1,3})|x([0-9a-fA-F]{1,2})|[uU]([0-9a-fA-F]{1,8})|(c.|x\{)|(.))", re.DOTALL)
_UNKNOWN = "\0"


def closing(text: str, at: int, end: int) -> int | None:
    """Offset of the quote that ends it."""
    while at < end and text[at] != "'":
        at += 2 if text[at] == "\\" else 1
    return at if at < end else None


def value(body: str) -> str | None:
    """Escapes resolved; None where bash's result isn't worked out here (control keys, bytes, NUL, `\\x{…}`)."""
    resolved = _ESCAPE.sub(_unescape, body)
    return None if _UNKNOWN in resolved else resolved


def _unescape(match: re.Match[str]) -> str:
    octal, two, many, control, other = match.groups()
    if other is not None:
        return _ESCAPES.get(other, other if other in "\\'\"?" else "\\" + other)
    if control is not None:
        return _UNKNOWN
    code = int(octal, 8) if octal else int(two or many, 16)
    # Bytes from 0x80 on make characters together with their neighbours.
    known = 0 < code < 0x80 or (many and code < 0x110000 and not 0xD800 <= code < 0xE000)
    return chr(code) if known else _UNKNOWN
