"""ladder_indent: the indentation of new lines, from how the model's lines stand for the file's."""

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

_TAB = 4
"""Columns of a tab where nothing tells."""


def indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]


@dataclass(frozen=True)
class Pair:
    """A line of `old` and the line of the file that it stands for: indentations, and where in `old`."""

    at: int
    model: str
    file: str


@dataclass(frozen=True)
class Indenter:
    """Moves lines from the model's indentation to the file's."""

    pairs: tuple[Pair, ...]
    as_in_file: bool
    """The model wrote the new lines with the file's indentation, whatever it did to `old`."""

    def __call__(self, line: str, at: int) -> str:
        """`line`, which comes in at line `at` of `old`."""
        bare = line.lstrip(" \t")
        if self.as_in_file or not bare or not self.pairs:
            return line
        mine = indent(line)
        best = max(self.pairs, key=lambda pair: (_rank(pair.model, mine), -abs(pair.at - at)))
        if mine.startswith(best.model):
            return best.file + self._in_style(mine[len(best.model) :]) + bare
        if best.model.startswith(mine):
            return _shortened(best.file, self._in_style(best.model[len(mine) :])) + bare
        return line

    def _in_style(self, extra: str) -> str:
        """Further indentation in the file's characters."""
        if not extra or not (style := "".join(pair.file for pair in self.pairs)):
            return extra
        if set(style) == {"\t"} and set(extra) == {" "}:
            return "\t" * max(1, round(len(extra) / self._width()))
        if set(style) == {" "} and set(extra) == {"\t"}:
            return " " * round(len(extra) * self._width())
        return extra

    def _width(self) -> float:
        """Spaces that stand for a tab, by the deepest pair in which they do."""
        seen = [
            (max(len(p.model), len(p.file)), min(len(p.model), len(p.file)))
            for p in self.pairs
            if {frozenset(p.model), frozenset(p.file)} == {frozenset(" "), frozenset("\t")}
        ]
        return max(seen)[0] / max(seen)[1] if seen else _TAB


def _rank(known: str, mine: str) -> tuple[int, int]:
    """Same indentation, else the deepest that `mine` goes on from, else the shallowest that goes on from `mine`."""
    if known == mine:
        return (3, 0)
    if mine.startswith(known):
        return (2, len(known))
    return (1, -len(known)) if known.startswith(mine) else (0, 0)


def _shortened(whole: str, by: str) -> str:
    return whole[: max(0, len(whole) - len(by))]


def indenter(
    base: Sequence[str], ours: Sequence[str], pairs: Sequence[int | None], new: Sequence[str]
) -> Indenter:
    """From the lines of `old` and of the window, paired, and the new lines."""
    known = tuple(
        Pair(at, indent(base[at]), indent(ours[number]))
        for at, number in enumerate(pairs)
        if number is not None and base[at].strip() and ours[number].strip()
    )
    if all(pair.model == pair.file for pair in known):
        return Indenter((), as_in_file=True)
    return _by_first_line(known, new) or _by_shared_lines(known, base, new)


def _by_shared_lines(known: tuple[Pair, ...], base: Sequence[str], new: Sequence[str]) -> Indenter:
    """Lines that stand in `old` and in `new` tell whether both are indented alike, or `new` as the file is."""
    by_line = {pair.at: pair for pair in known}
    as_model = as_file = 0
    shared = SequenceMatcher(None, [b.strip() for b in base], [n.strip() for n in new], autojunk=False)
    for i, j, size in shared.get_matching_blocks():
        for step in range(size):
            pair = by_line.get(i + step)
            if pair is not None and pair.model != pair.file:
                as_model += indent(new[j + step]) == pair.model
                as_file += indent(new[j + step]) == pair.file
    return Indenter(known, as_in_file=as_file > as_model)


def _by_first_line(known: tuple[Pair, ...], new: Sequence[str]) -> Indenter | None:
    """The first lines of `old` and `new` are meant to be at one depth (gemini-cli's rule).

    It decides only where the new text begins at a depth that neither `old` nor the file has there.
    """
    first = next((line for line in new if line.strip()), "")
    mine = indent(first)
    if not known or any(mine in (pair.model, pair.file) for pair in known):
        return None
    return Indenter((Pair(0, mine, known[0].file),), as_in_file=False)
