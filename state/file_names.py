"""file_names: write any file name as text that can be stored and printed, read it back, and compare names that look
alike.

A name on Linux is bytes. What isn't UTF-8, and what a terminal would obey, becomes `\\xNN`, a byte each, as in `$'…'`
of bash. A backslash becomes `\\x5c` where it would read as such an escape, so no two names have the same text.
"""

import os
import re
import unicodedata

_ESCAPE = r"x(?:0[1-9a-f]|1[0-9a-f]|5c|7f|[89a-f][0-9a-f])"
_AMBIGUOUS = re.compile(rf"\\(?={_ESCAPE})")
_ESCAPED = re.compile(rf"(?:\\{_ESCAPE})+")
_UNPRINTABLE = re.compile("[\x01-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\udc80-\udcff]")
_OCTAL = re.compile(r"\\([0-3][0-7]{2})")
"""How git writes bytes of names in its lists (`core.quotePath`)."""
_ENDS = " \t\r\n\"'`,\u2018\u2019\u201c\u201d"
"""What a model puts around a name, or behind it in a list."""
_ALIKE = {ord("\u2018"): "'", ord("\u2019"): "'", ord("\u201c"): '"', ord("\u201d"): '"'}

_SPELLED_OTHERWISE = frozenset(" '\"\\;`K")
"""Characters of ASCII that others fold to: `K` is also the sign for kelvin, `;` and the backtick are also Greek."""


def format_file_name(name: str) -> str:
    """Return a name or path as printable text, which `parse_file_name` turns back."""
    if name.isascii() and name.isprintable() and "\\x" not in name:
        return name
    return _UNPRINTABLE.sub(_escape_bytes, _AMBIGUOUS.sub(r"\\x5c", name))


def parse_file_name(text: str) -> str:
    """Return the name or path that a text of `format_file_name` stands for."""
    return _ESCAPED.sub(_join_bytes, text) if "\\x" in text else text


def _escape_bytes(found: re.Match[str]) -> str:
    return "".join(f"\\x{byte:02x}" for byte in os.fsencode(found[0]))


def _join_bytes(found: re.Match[str]) -> str:
    return os.fsdecode(bytes.fromhex(found[0].replace("\\x", "")))


def quote_path(path: "str | os.PathLike[str]") -> str:
    """Return a name or path as `format_file_name` writes it, in quotes. No backslash is doubled, so that what stands
    between the quotes is what a model can send back."""
    text = format_file_name(os.fspath(path))
    return f'"{text}"' if "'" in text and '"' not in text else f"'{text}'"


def quote_name(text: str) -> str:
    """Return a name or path as somebody wrote it, or was shown it, in quotes."""
    return quote_path(parse_file_name(text))


def fold_written_name(name: str) -> str:
    """Return one text for the spellings of a name: escaped as above or by git, composed otherwise, with other blanks
    and quotation marks."""
    if name.isascii() and "\\" not in name:
        return name
    name = _OCTAL.sub(lambda found: f"\\x{int(found[1], 8):02x}", name.replace("\\\\x", "\\x"))
    name = unicodedata.normalize("NFC", parse_file_name(name)).translate(_ALIKE)
    return "".join(" " if unicodedata.category(c) == "Zs" else c for c in name)


def has_one_spelling(name: str) -> bool:
    """Return whether `fold_written_name` returns this name for no other one."""
    return name.isascii() and name.isprintable() and _SPELLED_OTHERWISE.isdisjoint(name)


def strip_odd_ends(name: str) -> str:
    """Return a name without quotes, commas, backticks and blanks at its ends."""
    return name.strip(_ENDS)
