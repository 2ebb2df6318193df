"""hinted: where a block of whole lines goes, with a line number as a hint.

What stands once is found without the hint. Of several places the hint tells which is meant if one of them is exactly
there, or a few lines off and alone far around; else none is: a number that is nearly right may be nearer to another.
"""

from collections.abc import Iterator
from dataclasses import replace

from interlock.tools._text import line_at
from interlock.tools.matcher.edit import Placed, Problem, nearest_text, repaired
from interlock.tools.matcher.find import Match, Miscount, find

NEAR = 40
"""Lines on each side of a hint that are searched (Roo Code: 40)."""
OFF = 5
"""Lines that a hint may be off by: models miscount by a few; more, and it is of another state of the file."""
_MOST_NAMED = 20


def placed_lines(shown: str, text: str, old: str, new: str, line: int) -> Placed | Problem:
    """`old` and `new` are lines without the last one's break; `line` counts from 1, 0: there is no hint."""
    found = find(text, old, new, 1, whole_lines=True)
    if found is None:
        mended = repaired(text, old, new, 1, whole_lines=True)
        if mended is None:
            return Problem(
                "no_occurrence", f"the search text isn't in {shown!r}. {nearest_text(text, old, new)}"
            )
        return mended
    if isinstance(found, Miscount) and line:
        found = _by_hint(text, old, new, line, found) or found
    if isinstance(found, Miscount):
        return Problem("occurrence_mismatch", _several(shown, text, found))
    return Placed(found.strategy, found.spans)


def _by_hint(text: str, old: str, new: str, line: int, several: Miscount) -> Match | None:
    """The same search in the lines at the hint, then around it."""
    for start, end in _slices(text, line, old.count("\n") + 1):
        found = find(text[start:end], old, new, 1, whole_lines=True)
        if isinstance(found, Match) and found.strategy == several.strategy:
            spans = tuple(replace(s, start=s.start + start, end=s.end + start) for s in found.spans)
            return replace(found, spans=spans) if abs(line_at(text, spans[0].start) - line) <= OFF else None
    return None


def _slices(text: str, line: int, count: int) -> Iterator[tuple[int, int]]:
    starts = [0, *(at + 1 for at, char in enumerate(text) if char == "\n"), len(text) + 1]
    for first, last in ((line, line + count), (line - NEAR, line + count + NEAR)):
        low, high = (min(max(number, 1), len(starts)) - 1 for number in (first, last))
        if low < high:
            yield starts[low], starts[high] - 1


def _several(shown: str, text: str, found: Miscount) -> str:
    if not found.count:
        return f"the search text is like too many places of {shown!r} to be compared with them all; copy it exactly."
    named = [str(line_at(text, place)) for place in found.places[:_MOST_NAMED]]
    lines = ", ".join([*named, "…"] if found.count > len(named) else named)
    what = f"the search text stands at several places of {shown!r} (lines {lines})"
    return f"{what}; give the line of the one that is meant as :start_line:, or search for more lines."
