"""typography: characters that models confuse, folded into one, length by length."""

import unicodedata
from dataclasses import dataclass

_FOLDED = {
    "'": "‘’‚‛′＇",
    '"': "“”„‟″＂",
    "-": "‐‑‒–—―−﹣－",
    " ": "\u00a0\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000",
}
_TO_PLAIN = {char: plain for plain, chars in _FOLDED.items() for char in chars}


def fold(text: str) -> str:
    """Quotes, dashes and spaces of typographers as their ASCII kin; offsets stay."""
    if text.isascii():
        return text
    for char, plain in _TO_PLAIN.items():
        if char in text:
            text = text.replace(char, plain)
    return text


def in_form_of(text: str, piece: str) -> str:
    """`piece` composed or decomposed (NFC, NFD) as `text` is, where `text` is one of them throughout."""
    if piece.isascii():
        return piece
    for form in ("NFC", "NFD"):
        if unicodedata.is_normalized(form, text):
            return unicodedata.normalize(form, piece)
    return piece


@dataclass(frozen=True)
class Plainer:
    """Undoes typography that a model put into `old`, in what it wrote anew."""

    families: str
    """The plain characters whose kin were made up."""
    kept: str
    """Typographic characters that stand in the file's own text."""

    def __call__(self, piece: str) -> str:
        if not self.families or piece.isascii():
            return piece
        return "".join(self._plain(char) for char in piece)

    def _plain(self, char: str) -> str:
        plain = _TO_PLAIN.get(char)
        return plain if plain and plain in self.families and char not in self.kept else char


def plainer(old: str, window: str) -> Plainer:
    """From how `old` differs from the `window` of the file that it stands for."""
    made_up = {_TO_PLAIN[char] for char in old if char in _TO_PLAIN and char not in window}
    if made_up & {"'", '"'}:
        made_up |= {"'", '"'}
    kept = "".join(char for char in set(window) if char in _TO_PLAIN)
    return Plainer("".join(made_up), kept)
