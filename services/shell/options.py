"""options: a command's options, as far as they can be known."""

from collections.abc import Sequence
from dataclasses import dataclass

from interlock.services.shell.model import Word


@dataclass(frozen=True, slots=True)
class Options:
    """Options that a wrapper takes. Short ones by letter, long ones without dashes."""

    flags: str = ""
    values: str = ""
    """Letters that take a value, in the same word or the next."""
    long_flags: Sequence[str] = ()
    long_values: Sequence[str] = ()
    numbers: bool = False
    """`-5` is an option."""

    def skip(self, words: Sequence[Word], at: int) -> int | None:
        """Index of the first word that is no option; None: an option that isn't known."""
        while at < len(words):
            word = words[at]
            if word.may_be_option:
                return None
            if not word.lead.startswith("-") or word.text == "-":
                return at
            if word.text == "--":
                return at + 1
            step = self._step(word.text)
            if step is None or not word.literal or not all(w.literal for w in words[at : at + step]):
                return None
            at += step
        return at

    def _step(self, text: str) -> int | None:
        """Words that an option takes: itself, and its value when that is apart."""
        if text.startswith("--"):
            name, given, _ = text[2:].partition("=")
            if name in self.long_values:
                return 1 if given else 2
            return 1 if name in self.long_flags and not given else None
        if self.numbers and text[1:].isdigit():
            return 1
        for place, letter in enumerate(text[1:], 2):
            if letter in self.values:
                return 1 if place < len(text) else 2
            if letter not in self.flags:
                return None
        return 1


@dataclass(frozen=True, slots=True)
class Seen:
    """What options a command may have: letters of short clusters and long names, before `--`."""

    letters: frozenset[str]
    longs: tuple[str, ...]
    unknown: bool
    """A word whose value isn't known may be an option."""

    def long(self, *names: str) -> bool:
        """One of these is given; GNU programs accept any unambiguous beginning."""
        return any(given and name.startswith(given) for given in self.longs for name in names)

    def has(self, letters: str, *longs: str) -> bool:
        return not self.letters.isdisjoint(letters) or self.long(*longs)


def seen(words: Sequence[Word]) -> Seen:
    letters: set[str] = set()
    longs: list[str] = []
    unknown = False
    for word in words:
        if word.literal and word.text == "--":
            break
        unknown = unknown or word.may_be_option
        if word.lead.startswith("--"):
            longs.append(word.lead[2:].partition("=")[0])
        elif word.lead.startswith("-"):
            letters.update(word.lead[1:])
    return Seen(frozenset(letters), tuple(longs), unknown)
