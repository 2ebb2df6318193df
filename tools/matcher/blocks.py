"""blocks: parse the search/replace blocks of `apply_diff` and place their lines.

Parsing is strict: a misplaced marker is never text. A text that occurs once is found without its line number. If it
occurs several times, the number picks the place exactly there, or a few lines off if no other is nearby; else none: a
nearly right number may be closer to the wrong place.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from interlock.state.file_names import quote_name
from interlock.tools.file_content import line_number_at, truncate_line
from interlock.tools.matcher.edit import (
    EditProblem,
    PlacedEdit,
    already_applied_problem,
    describe_nearest_text,
    locate_corrected_edit,
)
from interlock.tools.matcher.find import STRATEGIES, find_exact_match, find_match
from interlock.tools.matcher.windows import Match, Miscount, WorkBudget

_MARKER = re.compile(r"<{7}|>{7}|={7}\s*$|:(?:start|end)_line:")
_SEARCH = re.compile(r"<{7} SEARCH>?\s*")
_HINT = re.compile(r":(start|end)_line:\s*(\d+)\s*")
_ESCAPED = re.compile(r"^\\(?=\\*(?:<{7}|={7}|>{7}|-{7}|:start_line:|:end_line:))")
_MARGIN = re.compile(r"\s*(?:(\d{1,9}) )?\|(?!\|) ?(.*)", re.DOTALL)
_FENCE = re.compile(r"```\w*\s*")
_FORM = "<<<<<<< SEARCH, :start_line:N, -------, the text, =======, the new text, >>>>>>> REPLACE"


_QUOTED = 60
"""Characters of a wrong line quoted in an error."""
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
    first: int = 0
    """The line that its own numbers say it begins at, before they were removed; 0: it had none."""

    @property
    def texts(self) -> tuple[str, str]:
        """Search and replacement, without the final line break."""
        return "\n".join(self.search), "\n".join(self.replace)


class DiffError(ValueError):
    """The text isn't a sequence of blocks; says which line is wrong, and why."""


def parse_blocks(diff: str) -> list[Block]:
    """Return the blocks in order; at least one. Raise `DiffError`."""
    lines = diff.replace("\r\n", "\n").split("\n")
    blocks: list[Block] = []
    at = 0
    while at < len(lines):
        if _SEARCH.fullmatch(lines[at]):
            block, at = _parse_block(lines, at)
            blocks.append(block)
        elif _is_stray_text(lines[at], before_first_block=not blocks):
            raise DiffError(
                f"line {at + 1} ({truncate_line(lines[at], _QUOTED, '…')!r}) stands outside of a block;"
                f" expected {_FORM}"
            )
        else:
            at += 1
    if len(blocks) > MOST_BLOCKS:
        raise DiffError(f"it has {len(blocks)} blocks, at most {MOST_BLOCKS} are applied at once")
    if not blocks:
        raise DiffError(f"it has no block; expected {_FORM}")
    return blocks


def _is_stray_text(line: str, *, before_first_block: bool) -> bool:
    """Return whether a line outside of blocks must not be dropped. What a model says `before_first_block` the first is
    no part of one; after a block it may be the rest of a replacement that held a marker."""
    if not line.strip() or _FENCE.fullmatch(line.strip()):
        return False
    return not before_first_block or _MARKER.match(line) is not None


def _parse_block(lines: list[str], begin: int) -> tuple[Block, int]:
    """Return the block starting at `begin`, and where the next one may start."""
    at, hint = begin + 1, 0
    while at < len(lines) and (found := _HINT.fullmatch(lines[at])):
        hint = int(found[2]) if found[1] == "start" else hint
        at += 1
    if at < len(lines) and lines[at].rstrip() == "-------":
        at += 1
    search, at = _parse_block_body(lines, at, begin, "=======")
    new, at = _parse_block_body(lines, at, begin, ">>>>>>> REPLACE")
    return Block(search, () if new == ("",) else new, hint), at


def _parse_block_body(
    lines: list[str], position: int, block_start: int, end_marker: str
) -> tuple[tuple[str, ...], int]:
    """Return the lines up to the marker `end_marker`, unescaped, and the position after it. Raise `DiffError`."""
    body: list[str] = []
    for number in range(position, len(lines)):
        line = lines[number]
        if line.rstrip() == end_marker:
            return tuple(body), number + 1
        if _MARKER.match(line):
            quoted = truncate_line(line, _QUOTED, "…")
            what = f"line {number + 1} ({quoted!r}) is a marker where {end_marker!r} was expected"
            raise DiffError(f"{what}; if it is text of the file, write a backslash before it")
        body.append(_ESCAPED.sub("", line) if line.startswith("\\") else line)
    raise DiffError(f"the block of line {block_start + 1} has no {end_marker!r}")


NEAR = 40
"""Lines searched on each side of a hint (Roo Code: 40)."""
OFF = 5
"""Maximum error of a hint in lines: models miscount by a few; a larger error means another version of the file."""
_MOST_NAMED = 20


def strip_line_numbers(block: Block) -> Block | None:
    """Return the block without the line numbers (`12 | text`) or bars (`| text`) of a listing; None: it has none, or
    they don't count its lines from near its hint. The first number is its line."""
    search = [*map(_MARGIN.fullmatch, block.search)]
    firsts = {int(found[1]) - at for at, found in enumerate(search) if found and found[1]}
    first = firsts.pop() if firsts else 0
    wrong = firsts or first < bool(first) or (first and block.line and abs(first - block.line) > OFF)
    if wrong or not (first or _has_margin_on_every_line(search, block.search)):
        return None
    old = _remove_margins(search, block.search, remove_bars=True)
    new = [*map(_MARGIN.fullmatch, block.replace)]
    every = _has_margin_on_every_line(new, block.replace)
    if not first and any(new) and not every:
        return None
    # Bars of a table are text: only a second bar is a margin there.
    table = any(line.lstrip().startswith("|") for line in old)
    bars = every and all(one[2].lstrip().startswith("|") for one in new if one and table)
    made = _remove_margins(new, block.replace, remove_bars=bars)
    return Block(old, () if made == ("",) else made, block.line or first, first)


def _has_margin_on_every_line(margin_matches: Sequence[re.Match[str] | None], lines: Sequence[str]) -> bool:
    return all(one or not line.strip() for one, line in zip(margin_matches, lines, strict=True))


def _remove_margins(
    margin_matches: Sequence[re.Match[str] | None], lines: Sequence[str], *, remove_bars: bool
) -> tuple[str, ...]:
    return tuple(
        one[2] if one and (one[1] or remove_bars) else line
        for one, line in zip(margin_matches, lines, strict=True)
    )


class PlacedBlock(NamedTuple):
    """A block as it was understood, and its place."""

    block: Block
    at: PlacedEdit


def locate_block(
    display_path: str, text: str, block: Block, to_current_line: Callable[[int], int], work: WorkBudget
) -> PlacedBlock | EditProblem:
    """Return the place of a block: of its text as written, then without the margin of a listing, then nearly as
    written; or why it has none.

    `now` converts a line of the file as the model knows it to one of `text`.
    """
    line = to_current_line(block.line)
    found = _find_block(text, block, line, work, allow_fuzzy=False)
    if found is None and (plain := strip_line_numbers(block)):
        found = _find_block(text, plain, to_current_line(plain.line), work, allow_fuzzy=False)
        if isinstance(found, Match) and _is_near_numbered_line(text, plain, found, to_current_line):
            return PlacedBlock(plain, PlacedEdit(found.strategy, found.spans))
        found = None
    found = found or _find_block(text, block, line, work)
    if isinstance(found, Match):
        return already_applied_problem(display_path, text, found) or PlacedBlock(
            block, PlacedEdit(found.strategy, found.spans)
        )
    if isinstance(found, Miscount):
        return EditProblem("occurrence_mismatch", _ambiguous_block_message(display_path, text, found))
    old, new = block.texts
    mended = locate_corrected_edit(text, old, new, 1, whole_lines=True, work=work)
    if mended is None:
        why = f"the search text isn't in {quote_name(display_path)}. {describe_nearest_text(text, old, new, work)}"
        return EditProblem("no_occurrence", why)
    return PlacedBlock(block, mended)


def locate_exact_block(
    display_path: str, text: str, block: Block, work: WorkBudget
) -> PlacedBlock | EditProblem:
    """Return the only place where a block's text stands exactly as written; or why there is none."""
    old, new = block.texts
    found = find_exact_match(text, old, new, 1, whole_lines=True)
    if isinstance(found, Match):
        return already_applied_problem(display_path, text, found) or PlacedBlock(
            block, PlacedEdit(found.strategy, found.spans)
        )
    if isinstance(found, Miscount):
        why = f"the search text stands at {found.count} places of {quote_name(display_path)}; search for more lines."
        return EditProblem("occurrence_mismatch", why)
    why = (
        f"the search text isn't in {quote_name(display_path)}. {describe_nearest_text(text, old, new, work)}"
    )
    return EditProblem("no_occurrence", why)


def is_ambiguous_block(text: str, block: Block, work: WorkBudget) -> bool:
    """Return whether the block's text stands at several places."""
    return isinstance(_find_block(text, block, 0, work), Miscount)


def _is_near_numbered_line(
    text: str, block: Block, found: Match, to_current_line: Callable[[int], int]
) -> bool:
    """Return whether the block is where its line numbers say; always true without numbers."""
    return not block.first or _line_distance(text, found, to_current_line(block.first)) <= OFF


def _find_block(
    text: str, block: Block, line: int, work: WorkBudget, *, allow_fuzzy: bool = True
) -> Match | Miscount | None:
    """Return where a block's text stands, nearest to `line` if it is given."""
    old, new = block.texts
    found = find_match(text, old, new, 1, whole_lines=True, allow_fuzzy=allow_fuzzy, work=work)
    if found is None or not line:
        return found
    # A blank line of the search may stand for the end of the file, so lines elsewhere may fit as well.
    off = _line_distance(text, found, line) if isinstance(found, Match) else NEAR
    if isinstance(found, Match) and (found.strategy == "exact" or off == 0):
        return found
    hinted = _find_match_near_line(text, old, new, line, found, work)
    return hinted if hinted and _line_distance(text, hinted, line) < off else found


def _line_distance(text: str, found: Match, line: int) -> int:
    return abs(line_number_at(text, found.spans[0].start) - line)


def _find_match_near_line(
    text: str, old: str, new: str, line: int, first_result: Match | Miscount, work: WorkBudget
) -> Match | None:
    """Search again in the lines at the hint, then around it: among several places with the strategy that found them,
    against one that is far away with each that compares all words."""
    allowed = (first_result.strategy,) if isinstance(first_result, Miscount) else STRATEGIES[:-1]
    for start, end in _slices_near_line(text, line, old):
        found = find_match(text[start:end], old, new, 1, whole_lines=True, work=work)
        if isinstance(found, Match) and found.strategy in allowed:
            spans = tuple(replace(s, start=s.start + start, end=s.end + start) for s in found.spans)
            moved = replace(found, spans=spans)
            return moved if _line_distance(text, moved, line) <= OFF else None
    return None


def _slices_near_line(text: str, line: int, old: str) -> Iterator[tuple[int, int]]:
    """Yield the lines at the hint, as many as `old` has, without and with blank ones around it; then more on each
    side."""
    bare, count = old.strip("\n").count("\n") + 1, old.count("\n") + 1
    for first, last in ((line, line + bare), (line, line + count), (line - NEAR, line + count + NEAR)):
        start, end = (_line_offset(text, max(number, 1)) for number in (first, last))
        if start < end:
            yield start, end - 1


def _line_offset(text: str, line: int) -> int:
    """Return the offset of a line, 1 beyond the end for lines that don't exist."""
    after = text.split("\n", line - 1)
    return len(text) - len(after[-1]) if len(after) == line else len(text) + 1


def _ambiguous_block_message(display_path: str, text: str, miscount: Miscount) -> str:
    if not miscount.count:
        return (
            f"one call can't compare it with all places of {quote_name(display_path)} that are like it; copy the "
            "lines exactly, or send the block by itself."
        )
    named = [str(line_number_at(text, place)) for place in miscount.places[:_MOST_NAMED]]
    lines = ", ".join([*named, "…"] if miscount.count > len(named) else named)
    what = f"the search text stands at several places of {quote_name(display_path)} (lines {lines})"
    return f"{what}; give the line of the one that is meant as :start_line:, or search for more lines."
