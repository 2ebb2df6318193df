"""words: what one word of bash stands for. Reads the source itself, so that a wrong parse tree is noticed."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from interlock.services.shell import ansi
from interlock.services.shell.model import Word

_PLAIN = re.compile(r"[A-Za-z0-9_./:,@%+\-]+")
_ENDS_WORD = frozenset(" \t\n;|&<>()`")
_EXPANDS = re.compile(r"[A-Za-z0-9_{(\[@*#?$!\-]")


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
    close = ansi.closing(scan.text, scan.at + 2, scan.end)
    if close is None:
        return False
    value = ansi.value(scan.text[scan.at + 2 : close])
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
