"""fuzzy: find the one window of lines nearest to `old`, within a tenth of its length.

Code has families: `push_queue` beside `pull_queue`, `case 3:` beside `case 4:`. If the intended member is gone, the
nearest one is a sibling, as close as a typo would be. So a difference only counts as a typo if it doesn't look like
another name: no digits, no word of a name used elsewhere in the text, no word fewer. Measured on 3,000 windows removed
from their files: without this 44 edits hit a sibling, with it 1 or none.
"""

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rapidfuzz import process
from rapidfuzz.distance import Levenshtein

from interlock.tools.matcher.windows import (
    TOKEN,
    LineIndex,
    Window,
    WorkBudget,
    build_window_ignoring_blank_lines,
    split_search_lines,
)
from interlock.tools.text_diff import Comparison

_SHORTEST = 10
"""Minimum characters of `old` (gemini-cli: 10)."""
_LIMIT = 0.1
"""Edits per character; whitespace counts a tenth of other characters (gemini-cli: 0.1 for both)."""
_RIVALS = 0.3
"""Windows up to this distance are checked, to be sure the best is unrivalled."""
_PROBED = 1 / 3 + 0.01
"""Share of `old` in the longest lines searched for. A window within 0.1 overall has one of them within 0.3."""
_PAIR = 6
"""Characters that take as long to compare as a pair of lines."""
_LINE, _WORDS = 30, 100
"""The same for a line of a window, and for its words."""
_MOST_COMPARED = 1_000_000
"""Pairs of lines compared: 0.3 s. Above it, fewer of `old`'s lines are searched for, and texts with even more likely
places are too repetitive."""
_PAIR_CHARS = 64_000
"""Product of two lines' lengths that takes as long as comparing one more pair."""
_MOST_CANDIDATES = 20_000
_MOST_HITS = 10_000
"""Occurrences of a name part that are checked; one with more is a common word."""
_LONGEST_NAME = 200
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_a-zA-Z]+")
"""Words of a name: `parseHTML_now` has three."""
_SEPARATORS = frozenset({",", ";"})
_ALIKE, _PARTS_ALIKE = 0.5, 0.6
"""Minimum similarity (1 minus edits by length) of two names, and of their differing parts, to count as a typo."""
_SHORT = 2
"""Windows of so few lines say little: there an extra word means another name."""
_MOST = 12
"""Maximum differing words of a window; each is searched for in the text."""
_BLOCK = 4_096
_LONGEST_LINE = 20_000


class _Candidate(NamedTuple):
    distance: float
    first: int
    """Index of its first line among the non-blank lines."""


def find_nearest_windows(text: str, old: str, work: WorkBudget) -> list[Window]:
    """Return the nearest window, or those too close to choose between; empty: none is near enough."""
    wanted = [line.strip() for line in split_search_lines(old) if line.strip()]
    if sum(map(len, wanted)) < _SHORTEST or max(map(len, wanted)) > _LONGEST_LINE:
        return []
    work.spend(len(text))
    lines = LineIndex(text, blank=False)
    found = sorted(_measure_candidates(lines, wanted, work))
    size = sum(map(len, wanted))
    if not found or found[0].distance > _LIMIT * size:
        return []
    best, rivals = found[0], found[1:]
    equals = [best, *(f for f in rivals if f.distance <= best.distance)]
    # Nearer by characters but not by words (`f(10)` to `f(1)` and `f(2)`): not equal, but not certain.
    if len(equals) == 1 and rivals and _has_rival_as_close(lines, wanted, best, rivals, work):
        return []
    chosen = sorted(lines.starts[f.first] for f in equals)
    windows = [_build_window(text, old, lines, start, len(wanted)) for start in chosen]
    there = [lines[best.first + at].strip() for at in range(len(wanted))]
    if len(equals) == 1 and not has_only_typos(text, windows[0].start, windows[0].end, wanted, there):
        return []
    return windows


def _build_window(text: str, old: str, lines: LineIndex, start: int, count: int) -> Window:
    first = bisect_left(lines.starts, start)
    return build_window_ignoring_blank_lines(
        text, split_search_lines(old), list(lines.starts[first : first + count]), old.endswith("\n")
    )


def _measure_candidates(lines: LineIndex, wanted: list[str], work: WorkBudget) -> Iterator[_Candidate]:
    size = sum(map(len, wanted))
    bare = [_remove_whitespace(line) for line in wanted]
    cost = len(bare) + sum(map(len, bare)) * max(map(len, bare)) // _PAIR_CHARS
    for first in sorted(_find_candidate_starts(lines, bare, _MOST_COMPARED // cost, work)):
        work.spend(_LINE * cost)
        measured = _window_distance(lines, first, wanted, bare, _RIVALS * size)
        if measured is not None:
            yield _Candidate(measured, first)


def _find_candidate_starts(
    lines: LineIndex, compact_lines: list[str], max_candidates: int, work: WorkBudget
) -> set[int]:
    """Return positions where a window may start: one of the longest lines roughly matches there. Empty above
    `max_candidates`."""
    probes = _choose_probe_lines(compact_lines, lines)
    max_candidates = min(_MOST_CANDIDATES, max_candidates)
    found: set[int] = set()
    for begin in range(0, len(lines), _BLOCK):
        block = [_remove_whitespace(lines[i]) for i in range(begin, min(begin + _BLOCK, len(lines)))]
        for at in probes:
            work.spend(_PAIR * len(block))
            cutoff = int(_RIVALS * len(compact_lines[at]))
            near = process.extract(
                compact_lines[at],
                block,
                scorer=Levenshtein.distance,
                processor=None,
                score_cutoff=cutoff,
                limit=None,
            )
            found.update(begin + index - at for _, _, index in near)
        if len(found) > max_candidates:
            return set()
    return {first for first in found if 0 <= first <= len(lines) - len(compact_lines)}


def _choose_probe_lines(compact_lines: list[str], lines: LineIndex) -> list[int]:
    order = sorted(range(len(compact_lines)), key=lambda index: -len(compact_lines[index]))
    wanted = _PROBED * sum(map(len, compact_lines))
    room = _MOST_COMPARED
    chosen: list[int] = []
    for index in order:
        room -= len(lines) + len(lines.text) * len(compact_lines[index]) // _PAIR_CHARS
        if room < 0 or wanted <= 0:
            break
        wanted -= len(compact_lines[index])
        chosen.append(index)
    return chosen


def _window_distance(
    lines: LineIndex, first: int, wanted: Sequence[str], compact_lines: Sequence[str], max_distance: float
) -> float | None:
    total = 0.0
    for index, line in enumerate(wanted):
        there = lines[first + index].strip()
        if there == line:
            continue
        there_bare = _remove_whitespace(there)
        total += Levenshtein.distance(compact_lines[index], there_bare)
        total += 0.1 * abs(len(line) - len(compact_lines[index]) - len(there) + len(there_bare))
        if total > max_distance:
            return None
    return total


def _has_rival_as_close(
    lines: LineIndex, wanted: Sequence[str], best: _Candidate, rivals: Sequence[_Candidate], work: WorkBudget
) -> bool:
    """Return whether some rival differs in no more words and symbols than the best."""
    tokens = [TOKEN.findall(line) for line in wanted]

    def words(found: _Candidate) -> int:
        work.spend(_WORDS * len(wanted))
        there = (TOKEN.findall(lines[found.first + index]) for index in range(len(wanted)))
        return sum(map(Levenshtein.distance, tokens, there))

    least = words(best)
    return any(words(rival) <= least for rival in rivals)


def _remove_whitespace(line: str) -> str:
    return "".join(line.split())


def has_only_typos(
    text: str, start: int, end: int, wanted: Sequence[str], found_lines: Sequence[str]
) -> bool:
    """Return whether lines `start` to `end` of the text (`found_lines`) differ from `wanted` by typos only."""
    lines: dict[tuple[str, str], int] = defaultdict(int)
    for line, other in zip(wanted, found_lines, strict=True):
        if line == other:
            continue
        pairs = set(_differing_words(TOKEN.findall(line), TOKEN.findall(other)))
        for pair in pairs:
            lines[pair] += 1
        if ("", "") in pairs or len(lines) > _MOST:
            return False
    # The same different name on several lines is something else, not a typo.
    short = len(wanted) <= _SHORT
    return all(count == 1 and _is_typo(text, start, end, *pair, short) for pair, count in lines.items())


def _differing_words(wanted: list[str], found_words: list[str]) -> Iterator[tuple[str, str]]:
    """Yield pairs of differing words; two empty strings if the difference isn't word for word."""
    for tag, i1, i2, j1, j2 in Comparison(wanted, found_words).get_opcodes():
        if tag == "equal" or set(wanted[i1:i2] + found_words[j1:j2]) <= _SEPARATORS:
            continue
        if i2 - i1 != j2 - j1:
            yield "", ""
        yield from zip(wanted[i1:i2], found_words[j1:j2], strict=False)


def _is_typo(text: str, start: int, end: int, wanted_word: str, found_word: str, has_few_lines: bool) -> bool:
    if wanted_word.casefold() == found_word.casefold():
        return True
    changed = Comparison(wanted_word, found_word).get_opcodes()
    differing = "".join(
        wanted_word[i1:i2] + found_word[j1:j2] for tag, i1, i2, j1, j2 in changed if tag != "equal"
    )
    if any(char.isdigit() for char in differing) or _is_dissimilar(
        wanted_word.lower(), found_word.lower(), _ALIKE
    ):
        return False
    my_parts, other_parts = _name_parts(wanted_word), _name_parts(found_word)
    more = [part for part in my_parts if part not in other_parts]
    fewer = [part for part in other_parts if part not in my_parts]
    if not more or (fewer and _is_dissimilar("".join(more), "".join(fewer), _PARTS_ALIKE)):
        return False
    if not fewer and len("".join(more)) == 1:
        return True
    if not fewer and has_few_lines:
        return False
    return not any(_is_used_elsewhere(text, start, end, part) for part in more)


def _is_dissimilar(one: str, other: str, min_similarity: float) -> bool:
    return Levenshtein.normalized_similarity(one, other) < min_similarity


def _name_parts(name: str) -> list[str]:
    return [part.lower() for part in _PART.findall(name)]


def _is_used_elsewhere(text: str, start: int, end: int, part: str) -> bool:
    """Return whether a word of a name also occurs outside the window."""
    hits = 0
    for written in (part, part.capitalize(), part.upper()):
        place = text.find(written)
        while place >= 0:
            if not start <= place < end and part in _name_parts(
                _whole_name_at(text, place, place + len(written))
            ):
                return True
            place = text.find(written, place + 1)
            hits += 1
            if hits > _MOST_HITS:
                return True
    return False


def _whole_name_at(text: str, first: int, last: int) -> str:
    """Return the whole name around a piece of it."""
    least, most = max(0, first - _LONGEST_NAME), min(len(text), last + _LONGEST_NAME)
    while first > least and (text[first - 1].isalnum() or text[first - 1] == "_"):
        first -= 1
    while last < most and (text[last].isalnum() or text[last] == "_"):
        last += 1
    return text[first:last]
