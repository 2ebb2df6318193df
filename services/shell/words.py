"""words: what one word of bash stands for. Reads the source itself, so that a wrong parse tree is noticed."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from interlock.services.shell.model import Word

if TYPE_CHECKING:
    from tree_sitter import Node

_PLAIN = re.compile(r"[A-Za-z0-9_./:,@%+\-]+")
_ENDS_WORD = frozenset(" \t\n;|&<>()`")
_ESCAPES = dict(zip("ntabeEfrv", "\n\t\a\b\x1b\x1b\f\r\v", strict=True))
_ESCAPE = re.compile(r"\\(?:([0-7]{1,3})|x([0-9a-fA-F]{1,2})|[uU]([0-9a-fA-F]{1,8})|(c.|x\{)|(.))", re.DOTALL)
_NOT_KNOWN = "\0"
_EXPANDS = re.compile(r"[A-Za-z0-9_{(\[@*#?$!\-]")
_DELIMITER = re.compile(r"(?P<quote>['\"]?)(?P<name>\w+)(?P=quote)|\\(?P<bare>\w+)", re.ASCII)
_EXPANDS_IN_BODY = re.compile(r"[`\\]|\$[^\w\s]", re.ASCII)
HEREDOC_PARTS = frozenset(("<<", "<<-", "heredoc_start", "heredoc_body", "heredoc_end", "file_redirect"))


@dataclass(slots=True)
class _Scan:
    """A word in the making."""

    text: str
    start: int
    end: int
    spans: Mapping[int, int]
    """Expansions of the parse tree: start → end."""
    at: int
    pieces: list[str] = field(default_factory=list[str])
    lead: str | None = None
    splits: bool = False
    wild: bool = False
    met: int = 0
    """Expansions passed."""

    def dynamic(self, *, splits: bool = False, wild: bool = False) -> None:
        if self.lead is None:
            self.lead = "".join(self.pieces)
        self.splits = self.splits or splits
        self.wild = self.wild or wild


def read_word(text: str, start: int, end: int, spans: Mapping[int, int]) -> Word | None:
    """The word at `text[start:end]`; None when bash wouldn't read one word there, with just these expansions."""
    source = text[start:end]
    if not spans and _PLAIN.fullmatch(source):
        return Word(source, True, source)
    scan = _Scan(text, start, end, spans, start)
    while scan.at < end:
        if not _step(scan):
            return None
    if scan.met != len(spans):
        return None
    return _made(scan, source)


def split_words(text: str, start: int, end: int, spans: Mapping[int, int]) -> list[Word] | None:
    """The words between blanks in `text[start:end]`; None when there is anything else, such as an operator."""
    words: list[Word] = []
    at = start
    while True:
        while at < end and text[at] in " \t":
            at += 1
        if at >= end:
            return words
        scan = _Scan(text, at, end, spans, at)
        while scan.at < end and _step(scan):
            pass
        if scan.at == at or (scan.at < end and text[scan.at] not in " \t"):
            return None
        words.append(_made(scan, text[at : scan.at]))
        at = scan.at


def _made(scan: _Scan, source: str) -> Word:
    value = "".join(scan.pieces)
    if scan.lead is None:
        return Word(value, True, value)
    return Word(source, False, scan.lead, scan.splits, scan.wild)


def _step(scan: _Scan) -> bool:
    """Read one character, quoted piece or expansion; False: it isn't part of a word."""
    char = scan.text[scan.at]
    if scan.at in scan.spans:
        _expansion(scan, quoted=False)
        return True
    if char in _ENDS_WORD or (char == "#" and scan.at == scan.start):
        return False
    if char == "\\":
        return _escape(scan)
    if char == "'":
        return _single(scan)
    if char == '"':
        return _double(scan)
    if char == "$":
        return _dollar(scan)
    if char.isspace() and not char.isascii():
        return False  # people read a blank, and so may bash elsewhere
    _globs(scan, char)
    scan.pieces.append(char)
    scan.at += 1
    return True


def _expansion(scan: _Scan, *, quoted: bool) -> None:
    end = scan.spans[scan.at]
    # Bash expands braces before it looks at quotes within quotes: `"${x:-"{a,b}"}"`.
    source = scan.text[scan.at : end]
    several = not quoted or "@" in source or (source.startswith("${") and '"' in source)
    scan.dynamic(splits=several, wild=several)
    scan.at = end
    scan.met += 1


def _escape(scan: _Scan) -> bool:
    if scan.at + 1 >= scan.end:
        return False
    after = scan.text[scan.at + 1]
    if after != "\n":
        scan.pieces.append(after)
    scan.at += 2
    return True


def _single(scan: _Scan) -> bool:
    close = scan.text.find("'", scan.at + 1, scan.end)
    if close < 0:
        return False
    scan.pieces.append(scan.text[scan.at + 1 : close])
    scan.at = close + 1
    return True


def _double(scan: _Scan) -> bool:
    scan.at += 1
    while scan.at < scan.end:
        char = scan.text[scan.at]
        if scan.at in scan.spans:
            _expansion(scan, quoted=True)
        elif char == '"':
            scan.at += 1
            return True
        elif char == "`" or (char == "$" and _expands(scan)):
            return False
        elif char == "\\" and scan.at + 1 < scan.end:
            after = scan.text[scan.at + 1]
            scan.pieces.append("" if after == "\n" else after if after in '$`"\\' else char + after)
            scan.at += 2
        else:
            scan.pieces.append(char)
            scan.at += 1
    return False


def _expands(scan: _Scan) -> bool:
    """Whether the `$` here begins an expansion."""
    return _EXPANDS.match(scan.text, scan.at + 1, scan.end) is not None


def _dollar(scan: _Scan) -> bool:
    after = scan.text[scan.at + 1 : scan.at + 2] if scan.at + 1 < scan.end else ""
    if after == "'":
        return _ansi(scan)
    if after == '"':
        scan.dynamic()  # translated by the locale
        scan.at += 1
        return _double(scan)
    if _expands(scan):
        return False
    scan.pieces.append("$")
    scan.at += 1
    return True


def _ansi(scan: _Scan) -> bool:
    close = _closing(scan.text, scan.at + 2, scan.end)
    if close is None:
        return False
    value = _ansi_value(scan.text[scan.at + 2 : close])
    if value is None:
        scan.dynamic()
    scan.pieces.append(value or "")
    scan.at = close + 1
    return True


def _globs(scan: _Scan, char: str) -> None:
    """Mark what an unquoted character makes of the word."""
    rest = scan.text[scan.at : scan.end]
    if char in "*?" or (char == "[" and "]" in rest) or (char == "{" and ("," in rest or ".." in rest)):
        scan.dynamic(splits=True)
    elif char == "~" and (scan.at == scan.start or scan.text[scan.at - 1] in ":="):
        scan.dynamic()


def _closing(text: str, at: int, end: int) -> int | None:
    """Offset of the quote that ends it."""
    while at < end and text[at] != "'":
        at += 2 if text[at] == "\\" else 1
    return at if at < end else None


def _ansi_value(body: str) -> str | None:
    """Escapes resolved; None where bash's result isn't worked out here (control keys, bytes, NUL, `\\x{…}`)."""
    resolved = _ESCAPE.sub(_unescape, body)
    return None if _NOT_KNOWN in resolved else resolved


def _unescape(match: re.Match[str]) -> str:
    octal, two, many, control, other = match.groups()
    if other is not None:
        return _ESCAPES.get(other, other if other in "\\'\"?" else "\\" + other)
    if control is not None:
        return _NOT_KNOWN
    code = int(octal, 8) if octal else int(two or many, 16)
    # Bytes from 0x80 on make characters together with their neighbours.
    known = 0 < code < 0x80 or (many and code < 0x110000 and not 0xD800 <= code < 0xE000)
    return chr(code) if known else _NOT_KNOWN


def document_problem(text: str, node: "Node") -> str | None:
    """Why bash may read another body than the parser did, or run something in it."""
    parts = {child.type: child for child in node.children}
    start, end = parts.get("heredoc_start"), parts.get("heredoc_end")
    delimiter = _DELIMITER.fullmatch(text[start.start_byte : start.end_byte]) if start is not None else None
    if not parts.keys() <= HEREDOC_PARTS or start is None or end is None or delimiter is None:
        return "a here-document that isn't alone on its line, or whose end can't be read"
    name = delimiter["name"] or delimiter["bare"]
    after = text.find("\n", start.end_byte) + 1
    closing = re.compile(rf"^{chr(9) + '*' if '<<-' in parts else ''}{name}$", re.MULTILINE).search(
        text, after
    )
    if after == 0 or closing is None or closing.end() != end.end_byte:
        return "a here-document that ends elsewhere"
    if not (delimiter["quote"] or delimiter["bare"]) and _EXPANDS_IN_BODY.search(text, after, end.start_byte):
        return "a here-document that may run something"
    return None
