"""stream: redacts a text that comes in pieces; a secret may be cut anywhere."""

import re
from contextlib import suppress
from pathlib import Path

from interlock.services.secrets.redaction import AFTER_A_WORD, IN_A_WORD, LONGEST, OVER_LINES, Redactor

_HELD = 3 * LONGEST
"""Characters that wait at most. More than two of the longest secrets: one that begins in the first half ends here."""
_CHUNK = 1 << 20
_ON_A_LINE = 2500
"""Characters after such a word that may belong to its secret."""
_STARTS = tuple({shape.start for shape in IN_A_WORD})
_BLANKS = frozenset(" \t\r\n")
_WORDS = tuple({shape.start for shape in AFTER_A_WORD})
_BEGUN = frozenset(
    s.start[:n] for s in (*IN_A_WORD, *AFTER_A_WORD, OVER_LINES) for n in range(1, len(s.start))
)
_LONGEST_START = max(map(len, _BEGUN))
_PRIVATE = re.compile(r"-----BEGIN [A-Z0-9 ]{0,60}(-{0,5}\Z|PRIVATE KEY)")


class RedactingStream:
    """One stream. What might be the beginning of a secret waits for the next piece; everything else goes on at once."""

    def __init__(self, redactor: Redactor) -> None:
        self._redact = redactor
        self._waiting = ""
        self._before = ""
        self._ender: frozenset[str] = frozenset()
        """Without one of these all of what waits goes on waiting; empty: it has to be looked at."""

    def feed(self, piece: str) -> str:
        """Take a piece; what can be shown now."""
        if not self._redact.enabled:
            return piece
        self._waiting += piece
        if len(self._waiting) <= _HELD and self._ender and self._ender.isdisjoint(piece):
            return ""
        cut = self._undecided()
        if len(self._waiting) - cut > _HELD:
            cut = len(self._waiting) - _HELD // 2
        return self._hand_out(self._beside(cut) if cut < len(self._waiting) else cut)

    def end(self) -> str:
        """No more will come; the rest."""
        return self._hand_out(len(self._waiting))

    def _hand_out(self, cut: int) -> str:
        if not cut:
            return ""
        ready, self._waiting = self._waiting[:cut], self._waiting[cut:]
        self._ender = frozenset()
        # The character before tells whether a word begins here.
        shown = self._redact(self._before + ready)[len(self._before) :]
        self._before = shown[-1:]
        return shown

    def _undecided(self) -> int:
        """Where the first thing begins that the next piece may make a secret."""
        text = self._waiting
        line = max(text.rfind("\n"), text.rfind("\r")) + 1
        word = max(line, text.rfind(" ") + 1, text.rfind("\t") + 1)
        begun = min((at for start in _STARTS if (at := text.find(start, word)) >= 0), default=-1)
        self._ender = _BLANKS if begun == 0 else frozenset()
        found = [begun]
        found += [text.find(start, max(line, len(text) - _ON_A_LINE)) for start in _WORDS]
        found += [self._key(text), self._begun(text), *(_part(text, v) for v in self._redact.literals)]
        return min((at for at in found if at >= 0), default=len(text))

    def _key(self, text: str) -> int:
        """A private key whose end hasn't come."""
        at = text.rfind(OVER_LINES.start)
        if at < 0 or not _PRIVATE.match(text, at):
            return -1
        end = text.find("-----END ", at)
        return at if end < 0 or text.find("-----", end + 9) < 0 else -1

    def _begun(self, text: str) -> int:
        """The first letters of a shape, at the end."""
        for size in range(min(_LONGEST_START, len(text)), 0, -1):
            at = len(text) - size
            if text[at:] in _BEGUN and not (text[at - 1 : at].isalnum() and text[at].isalnum()):
                return at
        return -1

    def _beside(self, cut: int) -> int:
        """The cut, or the beginning of the secret that it would go through."""
        for start, end, _ in reversed(self._redact.spans(self._waiting)):
            if start < cut < end:
                cut = start if end - start <= LONGEST else end
        return cut


def _part(text: str, value: str) -> int:
    """Where the text ends with the beginning of a value; -1: it doesn't."""
    at = text.find(value[0], max(0, len(text) - len(value) + 1))
    while at >= 0 and not value.startswith(text[at:]):
        at = text.find(value[0], at + 1)
    return at


def redact_file(path: Path, redact: Redactor) -> None:
    """Redact a file of outputs that a process wrote by itself. What can't be rewritten is removed."""
    if not redact.enabled:
        return
    stream, scratch = RedactingStream(redact.for_bytes()), path.with_name(f".{path.name}.redacted")
    try:
        with path.open("rb") as old, scratch.open("wb") as new:
            while chunk := old.read(_CHUNK):
                new.write(stream.feed(chunk.decode("latin-1")).encode("latin-1"))
            new.write(stream.end().encode("latin-1"))
        scratch.chmod(0o600)
        scratch.replace(path)
    except OSError:
        with suppress(OSError):
            scratch.unlink(missing_ok=True)
            path.unlink(missing_ok=True)
