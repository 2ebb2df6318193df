"""blocks: parse the search/replace blocks of `apply_diff` and place their lines.

Parsing is strict: a misplaced marker is never text. A text that occurs once is found without its line number. If it
occurs several times, the number picks the place exactly there, or a few lines off if no other is nearby; else none: a
nearly right number may be closer to the wrong place.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from interlock.tools._content import line_at
from interlock.tools.matcher.edit import Placed, Problem, nearest_text, repaired
from interlock.tools.matcher.find import Match, Miscount, find

_MARKER = re.compile(r"<{7}|>{7}|={7}\s*$|:(?:start|end)_line:")
_SEARCH = re.compile(r"<{7} SEARCH>?\s*")
_HINT = re.compile(r":(start|end)_line:\s*(\d+)\s*")
_ESCAPED = re.compile(r"^\\(?=\\*(?:<{7}|={7}|>{7}|-{7}|:start_line:|:end_line:))")
_NUMBERED = re.compile(r"\s*(\d+) \| ?(.*)", re.DOTALL)
_FENCE = re.compile(r"```\w*\s*")
_FORM = "<<<<<<< SEARCH, :start_line:N, -------, the text, =======, the new text, >>>>>>> REPLACE"


MOST_BLOCKS = 200
"""Each one searches the whole file."""


@dataclass(frozen=True)
class Block:
    """One change: whole lines replace whole lines."""

    search: tuple[str, ...]
    replace: tuple[str, ...]
    """Empty: the lines are deleted."""
    line: int
    """1-based line of the search text in the file as the model knows it; 0: not given."""


class DiffError(ValueError):
    """The text isn't a sequence of blocks; says which line is wrong, and why."""


def blocks_of(diff: str) -> list[Block]:
    """The blocks in order; at least one. Raises `DiffError`."""
    lines = diff.replace("\r\n", "\n").split("\n")
    blocks: list[Block] = []
    at = 0
    while at < len(lines):
        if _SEARCH.fullmatch(lines[at]):
            block, at = _block(lines, at)
            blocks.append(_without_numbers(block))
        elif lines[at].strip() and not _FENCE.fullmatch(lines[at].strip()):
            raise DiffError(
                f"line {at + 1} ({_short(lines[at])}) stands outside of a block; expected {_FORM}"
            )
        else:
            at += 1
    if len(blocks) > MOST_BLOCKS:
        raise DiffError(f"it has {len(blocks)} blocks, at most {MOST_BLOCKS} are applied at once")
    if not blocks:
        raise DiffError(f"there is no block in it; expected {_FORM}")
    return blocks


def _block(lines: list[str], begin: int) -> tuple[Block, int]:
    """The block starting at `begin`, and where the next one may start."""
    at, hint = begin + 1, 0
    while at < len(lines) and (found := _HINT.fullmatch(lines[at])):
        hint = int(found[2]) if found[1] == "start" else hint
        at += 1
    if at < len(lines) and lines[at].rstrip() == "-------":
        at += 1
    search, at = _body(lines, at, begin, "=======")
    new, at = _body(lines, at, begin, ">>>>>>> REPLACE")
    return Block(search, new, hint), at


def _body(lines: list[str], at: int, begin: int, end: str) -> tuple[tuple[str, ...], int]:
    """Lines up to the marker `end`, unescaped, and the position after it."""
    body: list[str] = []
    for number in range(at, len(lines)):
        line = lines[number]
        if line.rstrip() == end:
            return tuple(body), number + 1
        if _MARKER.match(line):
            what = f"line {number + 1} ({_short(line)}) is a marker where {end!r} was expected"
            raise DiffError(f"{what}; if it is text of the file, write a backslash before it")
        body.append(_ESCAPED.sub("", line) if line.startswith("\\") else line)
    raise DiffError(f"the block of line {begin + 1} has no {end!r}")


def _without_numbers(block: Block) -> Block:
    """Strip line numbers as shown by tools, if every line has one; the first is the line hint."""
    search = [found for line in block.search if (found := _NUMBERED.fullmatch(line))]
    new = [found for line in block.replace if (found := _NUMBERED.fullmatch(line))]
    blank = not any(line.strip() for line in block.replace)
    if not search or len(search) < len(block.search) or not (blank or len(new) == len(block.replace)):
        return block
    others = block.replace if blank else tuple(found[2] for found in new)
    first = int(search[0][1])
    return replace(
        block, search=tuple(found[2] for found in search), replace=others, line=block.line or first
    )


def _short(line: str) -> str:
    return repr(line if len(line) <= 60 else line[:60] + "…")


NEAR = 40
"""Lines searched on each side of a hint (Roo Code: 40)."""
OFF = 5
"""Maximum error of a hint in lines: models miscount by a few; a larger error means another version of the file."""
_MOST_NAMED = 20


def placed_lines(shown: str, text: str, old: str, new: str, line: int) -> Placed | Problem:
    """`old` and `new` are lines without the final line break; `line` is 1-based, 0: no hint."""
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
    """Repeat the search in the lines at the hint, then around it."""
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
