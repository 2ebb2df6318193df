"""ladder_fuzzy: the one window of lines that comes nearest to `old`, within a tenth of its length."""

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rapidfuzz import process
from rapidfuzz.distance import Levenshtein

from interlock.tools._ladder_doubt import slips
from interlock.tools._ladder_lines import blank_tolerant, old_lines
from interlock.tools._ladder_tokens import TOKEN
from interlock.tools._ladder_types import Window

_SHORTEST = 10
"""Characters of `old` (gemini-cli: 10)."""
_LIMIT = 0.1
"""Edits per character; whitespace counts a tenth of other characters (gemini-cli: 0.1 both)."""
_RIVALS = 0.3
"""Windows up to this distance are looked at, to know that the best has no equal."""
_PROBED = 1 / 3 + 0.01
"""Share of `old` in its longest lines that are looked for. A window within 0.1 in all has one of them within 0.3."""
_MOST_COMPARED = 1_000_000
"""Lines of `old` times lines of the file that are compared: 0.3 s. Beyond it fewer of `old`'s lines are looked for."""
_MOST_CANDIDATES = 20_000
"""A text with more places that are about right is too much alike everywhere."""
_BLOCK = 4_096
_LONGEST_LINE = 20_000


@dataclass(frozen=True)
class _Found:
    first: int
    """Place of its first line among the lines that aren't blank."""
    distance: float
    words: int
    """Words and signs that differ."""


class _Lines:
    """The lines of a text that aren't blank, by their starts: a large text isn't held twice."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.starts = array("Q")
        place = 0
        while place >= 0 and place < len(text):
            stop = text.find("\n", place)
            end = len(text) if stop < 0 else stop
            if text[place:end].strip():
                self.starts.append(place)
            place = end + 1

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, index: int) -> str:
        start = self.starts[index]
        stop = self.text.find("\n", start)
        return self.text[start : len(self.text) if stop < 0 else stop]


def fuzzy_windows(text: str, old: str) -> list[Window]:
    """None, the one that is nearest, or those between which can't be chosen."""
    wanted = [line.strip() for line in old_lines(old) if line.strip()]
    if sum(map(len, wanted)) < _SHORTEST or max(map(len, wanted)) > _LONGEST_LINE:
        return []
    lines = _Lines(text)
    found = sorted(_measured(lines, wanted), key=lambda f: (f.distance, f.words))
    size = sum(map(len, wanted))
    if not found or found[0].distance > _LIMIT * size:
        return []
    best, rivals = found[0], found[1:]
    equals = [best, *(f for f in rivals if f.distance <= best.distance)]
    # Nearer by characters but not by words (`f(10)` to `f(1)` and `f(2)`): not equal, and not sure either.
    if len(equals) == 1 and any(f.words <= best.words for f in rivals):
        return []
    chosen = sorted(lines.starts[f.first] for f in equals)
    windows = [_window(text, old, lines, start, len(wanted)) for start in chosen]
    there = [lines[best.first + at].strip() for at in range(len(wanted))]
    if len(equals) == 1 and not slips(text, windows[0].start, windows[0].end, wanted, there):
        return []
    return windows


def _window(text: str, old: str, lines: _Lines, start: int, count: int) -> Window:
    first = bisect_left(lines.starts, start)
    return blank_tolerant(text, old_lines(old), list(lines.starts[first : first + count]), old.endswith("\n"))


def _measured(lines: _Lines, wanted: list[str]) -> Iterator[_Found]:
    size = sum(map(len, wanted))
    bare = [_bare(line) for line in wanted]
    for first in sorted(_candidates(lines, bare)):
        measured = _distance(lines, first, wanted, bare, _RIVALS * size)
        if measured is not None:
            yield measured


def _candidates(lines: _Lines, bare: list[str]) -> set[int]:
    """Places where a window may begin: one of the longest lines is about right there."""
    probes = _probes(bare, len(lines))
    found: set[int] = set()
    for begin in range(0, len(lines), _BLOCK):
        block = [_bare(lines[i]) for i in range(begin, min(begin + _BLOCK, len(lines)))]
        for at in probes:
            cutoff = int(_RIVALS * len(bare[at]))
            near = process.extract(
                bare[at], block, scorer=Levenshtein.distance, processor=None, score_cutoff=cutoff, limit=None
            )
            found.update(begin + index - at for _, _, index in near)
        if len(found) > _MOST_CANDIDATES:
            return set()
    return {first for first in found if 0 <= first <= len(lines) - len(bare)}


def _probes(bare: list[str], lines: int) -> list[int]:
    order = sorted(range(len(bare)), key=lambda index: -len(bare[index]))
    wanted = _PROBED * sum(map(len, bare))
    chosen: list[int] = []
    while order and wanted > 0 and (len(chosen) + 1) * lines <= _MOST_COMPARED:
        wanted -= len(bare[order[0]])
        chosen.append(order.pop(0))
    return chosen


def _distance(
    lines: _Lines, first: int, wanted: Sequence[str], bare: Sequence[str], most: float
) -> _Found | None:
    total = 0.0
    words = 0
    for index, line in enumerate(wanted):
        there = lines[first + index].strip()
        if there == line:
            continue
        there_bare = _bare(there)
        total += Levenshtein.distance(bare[index], there_bare)
        total += 0.1 * abs(len(line) - len(bare[index]) - len(there) + len(there_bare))
        if total > most:
            return None
        words += Levenshtein.distance(TOKEN.findall(line), TOKEN.findall(there))
    return _Found(first, total, words)


def _bare(line: str) -> str:
    return "".join(line.split())
