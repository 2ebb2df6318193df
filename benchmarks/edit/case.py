"""case: an edit's case, and the correct edits that cases are made from."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random

WORD = re.compile(r"[A-Za-z_]\w{3,}")


@dataclass(frozen=True)
class Case:
    """One edit to apply. `right` None: the edit must be refused."""

    kind: str
    before: bytes
    old: str
    new: str
    right: bytes | None
    expected: int | None = 1
    true_old: str = ""
    """The answer of a model that knows the file."""
    true_new: str = ""
    repairable: bool = True
    """False: can't be repaired without a model, if at all."""
    where: tuple[int, int] = (0, 0)
    """Offsets of the window that may change."""


@dataclass(frozen=True)
class Seed:
    """A correct edit, before it is spoilt."""

    text: str
    start: int
    old: str
    new: str
    both: bool
    """Spoil both strings; else the old one only."""

    @property
    def right(self) -> str:
        return self.text[: self.start] + self.new + self.text[self.start + len(self.old) :]

    def case(self, kind: str, spoil: Callable[[str], str] | None = None) -> Case:
        old = spoil(self.old) if spoil else self.old
        new = spoil(self.new) if spoil and self.both else self.new
        return Case(
            kind,
            self.text.encode(),
            old,
            new,
            self.right.encode(),
            true_old=self.old,
            true_new=self.new,
            where=(self.start, self.start + len(self.old)),
        )


def seeds(random: Random, texts: list[str], least: int = 3, most: int = 9) -> Iterator[Seed]:
    """Windows of whole lines, unique in their file even without whitespace, each with a change."""
    while True:
        text = random.choice(texts)
        lines = text.split("\n")
        count = random.randint(least, most)
        first = random.randrange(0, max(1, len(lines) - count - 1))
        window = lines[first : first + count]
        old = "\n".join(window)
        if not window[0].strip() or not window[-1].strip() or len(bare(old)) < 40:
            continue
        if bare(text).count(bare(old)) != 1 or (new := _changed(random, window)) == old:
            continue
        start = sum(len(line) + 1 for line in lines[:first])
        yield Seed(text, start, old, new, random.random() < 0.5)


def _changed(random: Random, window: list[str]) -> str:
    """Insert, remove or change a line, but never the first or last, so that the window keeps its ends."""
    at = random.randrange(1, len(window) - 1) if len(window) > 2 else 0
    lines = list(window)
    line = lines[at]
    indent = line[: len(line) - len(line.lstrip())]
    how = random.choice(("put in", "take out", "change", "change"))
    if how == "put in" or not line.strip():
        near = next((w for w in reversed(lines[: at + 1]) if w.strip()), "")
        lines.insert(
            at + 1, near[: len(near) - len(near.lstrip())] + f"added_{random.randrange(999)}(value);"
        )
    elif how == "take out":
        del lines[at]
    else:
        words = list(WORD.finditer(line))
        found = random.choice(words) if words else None
        lines[at] = (
            f"{indent}changed" if found is None else line[: found.start()] + "renamed" + line[found.end() :]
        )
    return "\n".join(lines)


def bare(text: str) -> str:
    return "".join(text.split())
