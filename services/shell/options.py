"""options: which options a command is given: by a list of all that are known, or the few that are dangerous."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from interlock.services.shell.model import Word


@dataclass(frozen=True, slots=True)
class Options:
    """Options that a program may have."""

    flags: str = ""
    values: str = ""
    """Letters that take a value, in the same word or the next."""
    longs: str = ""
    """Without dashes; `name=` takes a value behind the sign."""
    numbers: bool = False
    """`-20` is an option."""

    def read(self, words: Iterable[Word], *, leading: bool = False) -> tuple[set[str], list[Word]] | None:
        """Those that are given, and the operands; None: one that isn't listed, or can't be known.

        `leading`: the first operand ends them; without, who asks looks at what operands may stand for.
        """
        given: set[str] = set()
        operands: list[Word] = []
        rest = iter(words)
        for word in rest:
            if not word.lead.startswith("-") or word.text == "-":
                if leading:
                    return None if word.may_be_option else (given, [word, *rest])
                operands.append(word)
            elif not word.literal:
                return None
            elif word.text == "--":
                operands += rest
            elif (found := self._names(word.text)) is None:
                return None
            else:
                given |= set(found[0])
                after = next(rest, None) if found[1] else word
                if after is None or not after.literal:
                    return None
        return given, operands

    def _names(self, text: str) -> tuple[Sequence[str], bool] | None:
        """The options in one word, and whether the next word is the value of the last."""
        if text.startswith("--"):
            name, sign, _ = text[2:].partition("=")
            return ([name], False) if name + sign in self.longs.split() else None
        if self.numbers and text[1:].isdecimal():
            return (), False
        for place, letter in enumerate(text[1:], 1):
            if letter in self.values:
                return text[1 : place + 1], place + 1 == len(text)
            if letter not in self.flags:
                return None
        return text[1:], False


@dataclass(frozen=True, slots=True)
class Form:
    """Options and words that make a command do something of its own kind; any of them."""

    why: str
    letters: frozenset[str]
    longs: tuple[str, ...]
    words: frozenset[str]
    leads: tuple[str, ...]

    def met(self, words: Sequence[Word], *, whole: bool = False) -> bool:
        """`whole`: long names only as a whole, by one dash or two; else by any beginning, as GNU programs take them."""
        letters: set[str] = set()
        longs: list[str] = []
        for word in words:
            if word.literal and word.text == "--":
                break
            if word.lead.startswith("--"):
                longs.append(word.lead[2:].partition("=")[0])
            elif word.lead.startswith("-"):
                letters.update(word.lead[1:])
        if whole:
            names = {w.lead.lstrip("-").partition("=")[0] for w in words if w.lead.startswith("-")}
            named = not names.isdisjoint(self.longs)
        else:
            named = any(given and name.startswith(given) for given in longs for name in self.longs)
        said = any(w.text in self.words or (self.leads and w.text.startswith(self.leads)) for w in words)
        return named or said or not letters.isdisjoint(self.letters)


def form(why: str, text: str) -> Form:
    """`-x` a letter, `--name` a long name, `+…` a word that begins so, and whole words."""
    tokens = text.split()
    short = [t for t in tokens if len(t) == 2 and t[0] == "-" and t[1].isalpha()]
    longs = [t for t in tokens if t.startswith("--") and len(t) > 2]
    leads = [t for t in tokens if t.endswith("…")]
    words = {*tokens} - {*short, *longs, *leads}
    return Form(
        why,
        frozenset(t[1] for t in short),
        tuple(t[2:] for t in longs),
        frozenset(words),
        tuple(t[:-1] for t in leads),
    )
