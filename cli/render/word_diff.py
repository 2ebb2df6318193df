"""word_diff: parses a unified diff line by line and marks the words that changed, for every place that shows one."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from rapidfuzz.distance import LCSseq
from rapidfuzz.process import extractOne

from interlock.state.text import make_visible

Kind = Literal["file", "hunk", "same", "removed", "added", "note"]
Pieces = tuple[tuple[str, bool], ...]
"""Pieces of a line, each with whether it changed; at least one."""

SIGNS: dict[Kind, str] = {"removed": "-", "added": "+", "same": " "}
"""The sign that each kind of line begins with, which its pieces leave out."""
_WORD = re.compile(r"\w+|\s+|.")
_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_MOST_PIECES = 400
"""Words of a line to compare; a longer line is marked as a whole."""
_MOST_PAIRS = 2_500
"""Removed times added lines of a change beyond which related lines aren't matched up."""
_ALIKE = 0.5
"""Least share of common words for a line to count as changed instead of replaced."""


@dataclass(frozen=True)
class DiffLine:
    kind: Kind
    pieces: Pieces
    number: int = 0
    """Line number in the new file, or in the old one for a removed line. 0: none."""

    @property
    def text(self) -> str:
        return "".join(text for text, _ in self.pieces)


def parse_diff(diff: str) -> Iterator[DiffLine]:
    """Parse a diff that tools preview and report (`tools/text_diff.py`). Deceptive characters are escaped."""
    left = right = 0
    removed: list[str] = []
    added: list[str] = []
    old = new = 0
    for line in make_visible(diff).split("\n"):
        sign = line[:1]
        removes, adds = sign == "-" and left > 0, sign == "+" and right > 0
        if not adds and (added or not removes):
            yield from _marked_change_lines(removed, added, old, new)
            old, new = old + len(removed), new + len(added)
            removed, added = [], []
        if removes:
            removed.append(line[1:])
            left -= 1
        elif adds:
            added.append(line[1:])
            right -= 1
        elif found := _HUNK.match(line):
            old, left = int(found[1]), _parse_hunk_line_count(found[2])
            new, right = int(found[3]), _parse_hunk_line_count(found[4])
            yield DiffLine("hunk", ((line, False),))
        elif sign == " " and left > 0 and right > 0:
            yield DiffLine("same", ((line[1:], False),), new)
            old, new, left, right = old + 1, new + 1, left - 1, right - 1
        elif line:
            yield DiffLine("file" if line.startswith(("--- ", "+++ ")) else "note", ((line, False),))
    yield from _marked_change_lines(removed, added, old, new)


def _parse_hunk_line_count(count_text: str | None) -> int:
    return 1 if count_text is None else int(count_text)


def _marked_change_lines(
    removed: Sequence[str], added: Sequence[str], old_start: int, new_start: int
) -> Iterator[DiffLine]:
    """Removed lines, then added ones; in matching lines only the words that differ are marked."""
    marks_old: dict[int, Pieces] = {}
    marks_new: dict[int, Pieces] = {}
    for i, j in _pair_changed_lines(removed, added):
        if marks := _mark_changed_words(removed[i], added[j]):
            marks_old[i], marks_new[j] = marks
    for i, line in enumerate(removed):
        yield DiffLine("removed", marks_old.get(i, ((line, False),)), old_start + i)
    for j, line in enumerate(added):
        yield DiffLine("added", marks_new.get(j, ((line, False),)), new_start + j)


def _pair_changed_lines(removed: Sequence[str], added: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Pair lines one by one if there are equally many, else each with the likest one below the last pair."""
    if len(removed) == len(added):
        yield from zip(range(len(removed)), range(len(added)), strict=True)
        return
    if len(removed) * len(added) > _MOST_PAIRS:
        return
    lines, at = [line.strip()[:_MOST_PIECES] for line in added], 0
    for number, line in enumerate(removed):
        alike = LCSseq.normalized_similarity
        found = extractOne(line.strip()[:_MOST_PIECES], lines[at:], scorer=alike, score_cutoff=_ALIKE)
        if found:
            yield number, at + found[2]
            at += found[2] + 1


def _mark_changed_words(old: str, new: str) -> tuple[Pieces, Pieces] | None:
    """Mark the differing words; None: the lines have too little in common, or are too long."""
    one, other = _WORD.findall(old), _WORD.findall(new)
    if not one or not other or max(len(one), len(other)) > _MOST_PIECES:
        return None
    pieces_old: list[tuple[str, bool]] = []
    pieces_new: list[tuple[str, bool]] = []
    common = 0
    for op in LCSseq.opcodes(one, other):
        text, changed = "".join(one[op.src_start : op.src_end]), op.tag != "equal"
        common += 0 if changed else len(text.strip())
        pieces_old.append((text, changed))
        pieces_new.append(("".join(other[op.dest_start : op.dest_end]), changed))
    if common < _ALIKE * max(len(old.strip()), len(new.strip())):
        return None
    return _merge_pieces(pieces_old), _merge_pieces(pieces_new)


def _merge_pieces(pieces: Sequence[tuple[str, bool]]) -> Pieces:
    """Merge neighbours of one kind; a space between two changes belongs to them."""
    shown: list[tuple[str, bool]] = []
    for number, (text, changed) in enumerate(pieces):
        if not text:
            continue
        between = not text.strip() and shown and shown[-1][1] and any(t for t, c in pieces[number + 1 :] if c)
        if shown and (shown[-1][1] == changed or between):
            shown[-1] = (shown[-1][0] + text, shown[-1][1])
        else:
            shown.append((text, changed))
    return tuple(shown) or (("", False),)
