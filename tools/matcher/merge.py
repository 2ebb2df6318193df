"""merge: compute a window's replacement: the model's change applied to the file's actual text.

`old` doesn't quite match the file. So lines the model doesn't change stay as in the file; the others come from `new`,
with the file's indentation and typography (a three-way merge with `old` as its base).
"""

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from interlock.tools.matcher.windows import Window, line_indent, next_paired_line_numbers
from interlock.tools.text_diff import Comparison

_PIECE = re.compile(r"\w+|\n[^\S\n]*|[^\S\n]+|[^\w\s]")
_MOST_PIECES = 2_000
"""Maximum pieces of lines merged word by word; the comparison is quadratic."""

Op = tuple[Literal["replace", "delete", "insert", "equal"], int, int, int, int]
_TAB = 4
"""Default tab width in columns."""


@dataclass(frozen=True)
class IndentPair:
    """A line of `old` and its counterpart in the file: their indentations, and the position in `old`."""

    at: int
    model: str
    file: str


@dataclass(frozen=True)
class Indenter:
    """Converts lines from the model's indentation to the file's."""

    pairs: tuple[IndentPair, ...]
    as_in_file: bool
    """The new lines already have the file's indentation, whatever `old` has."""

    def __call__(self, line: str, at: int) -> str:
        """Reindent `line`, which is inserted at line `at` of `old`."""
        bare = line.lstrip(" \t")
        if self.as_in_file or not bare or not self.pairs:
            return line
        mine = line_indent(line)
        model, file = self._nearest_indents(mine, at)
        if mine.startswith(model):
            return file + self._convert_indent_characters(mine[len(model) :]) + bare
        if model.startswith(mine):
            return _trim_end_by_length(file, self._convert_indent_characters(model[len(mine) :])) + bare
        return line

    def _nearest_indents(self, indent: str, line_number: int) -> tuple[str, str]:
        """Return the indentations of the pair nearest to the line, among those most similar in indentation."""
        if indent not in self._similar_pairs_cache:
            best = max(_rank_indent_similarity(model, indent) for model in self._pairs_by_model_indent)
            likest = [m for m in self._pairs_by_model_indent if _rank_indent_similarity(m, indent) == best]
            self._similar_pairs_cache[indent] = sorted(
                (p for m in likest for p in self._pairs_by_model_indent[m]), key=lambda p: p.at
            )
        pairs = self._similar_pairs_cache[indent]
        number = bisect_left(pairs, line_number, key=lambda pair: pair.at)
        pair = min(pairs[max(0, number - 1) : number + 1], key=lambda pair: abs(pair.at - line_number))
        return pair.model, pair.file

    @cached_property
    def _pairs_by_model_indent(self) -> dict[str, list[IndentPair]]:
        found: dict[str, list[IndentPair]] = {}
        for pair in self.pairs:
            found.setdefault(pair.model, []).append(pair)
        return found

    @cached_property
    def _similar_pairs_cache(self) -> dict[str, list[IndentPair]]:
        return {}

    @cached_property
    def _file_indent_characters(self) -> set[str]:
        return set("".join(pair.file for pair in self.pairs))

    def _convert_indent_characters(self, extra: str) -> str:
        """Return extra indentation in the file's characters."""
        if not extra or not self._file_indent_characters:
            return extra
        if self._file_indent_characters == {"\t"} and set(extra) == {" "}:
            return "\t" * max(1, round(len(extra) / self._tab_width))
        if self._file_indent_characters == {" "} and set(extra) == {"\t"}:
            return " " * round(len(extra) * self._tab_width)
        return extra

    @cached_property
    def _tab_width(self) -> float:
        """Spaces per tab, from the deepest pair that shows it."""
        seen = [
            (max(len(p.model), len(p.file)), min(len(p.model), len(p.file)))
            for p in self.pairs
            if {frozenset(p.model), frozenset(p.file)} == {frozenset(" "), frozenset("\t")}
        ]
        return max(seen)[0] / max(seen)[1] if seen else _TAB


def _rank_indent_similarity(known: str, wanted: str) -> tuple[int, int]:
    """Return a rank: the same indentation, then the deepest that `wanted` extends, then the shallowest that extends
    `wanted`."""
    if known == wanted:
        return (3, 0)
    if wanted.startswith(known):
        return (2, len(known))
    return (1, -len(known)) if known.startswith(wanted) else (0, 0)


def _trim_end_by_length(text: str, other: str) -> str:
    return text[: max(0, len(text) - len(other))]


def make_indenter(
    base: Sequence[str], ours: Sequence[str], pairs: Sequence[int | None], new: Sequence[str]
) -> Indenter:
    """Return an indenter built from the paired lines of `old` and of the window, and the new lines."""
    known = tuple(
        IndentPair(at, line_indent(base[at]), line_indent(ours[number]))
        for at, number in enumerate(pairs)
        if number is not None and base[at].strip() and ours[number].strip()
    )
    if all(pair.model == pair.file for pair in known):
        return Indenter((), as_in_file=True)
    return _make_indenter_from_first_line(known, new) or _make_indenter_from_shared_lines(known, base, new)


def _make_indenter_from_shared_lines(
    known: tuple[IndentPair, ...], base: Sequence[str], new: Sequence[str]
) -> Indenter:
    """Return an indenter: lines shared by `old` and `new` tell whether both are indented alike, or `new` like the
    file."""
    by_line = {pair.at: pair for pair in known}
    as_model = as_file = 0
    shared = Comparison([b.strip() for b in base], [n.strip() for n in new])
    for i, j, size in shared.get_matching_blocks():
        for step in range(size):
            pair = by_line.get(i + step)
            if pair is not None and pair.model != pair.file:
                as_model += line_indent(new[j + step]) == pair.model
                as_file += line_indent(new[j + step]) == pair.file
    first = line_indent(next((line for line in new if line.strip()), ""))
    unlike = as_file == as_model and first == known[0].file != known[0].model
    return Indenter(known, as_in_file=as_file > as_model or unlike)


def _make_indenter_from_first_line(known: tuple[IndentPair, ...], new: Sequence[str]) -> Indenter | None:
    """Return an indenter that takes the first lines of `old` and `new` as equally deep (gemini-cli's rule), else None.

    Only decides if the new text starts at a depth that neither `old` nor the file has there.
    """
    first = next((line for line in new if line.strip()), "")
    mine = line_indent(first)
    if not known or any(mine in (pair.model, pair.file) for pair in known):
        return None
    return Indenter((IndentPair(0, mine, known[0].file),), as_in_file=False)


def merge_window(text: str, window: Window, old: str, new: str) -> str:
    """Return `new` for a window that is like `old`."""
    return keep_lines_separate(text, window, old, new, _merge_lines(text, window, old, new))


def _merge_lines(text: str, window: Window, old: str, new: str) -> str:
    ours = text[window.start : window.end]
    plain = make_typography_normalizer(old, ours)
    if window.pairs is None:
        return _reindent_unpaired_replacement(text, window, old, plain(new))
    tail = old.endswith("\n")
    both = tail and new.endswith("\n")
    if not new:
        return ""
    base = old.removesuffix("\n" if tail else "").split("\n")
    theirs = new.removesuffix("\n" if both else "").split("\n")
    # At the end of a file, a blank last line of `old` may stand for what is behind the final line break.
    ends = (
        tail
        and ours.endswith("\n")
        and max((n for n in window.pairs if n is not None), default=0) < ours.count("\n")
    )
    mine = ours.removesuffix("\n" if ends else "").split("\n")
    merge = _LineMerge(
        mine,
        base,
        _trim_invented_trailing_whitespace(mine, base, window.pairs, list(map(plain, theirs))),
        window.pairs,
    )
    ended = "\n" if both and ends else ""
    return "\n".join(merge.merged_lines()) + ended


def _reindent_unpaired_replacement(text: str, window: Window, old: str, new: str) -> str:
    """Return `new`, reindented to the window's start, without the line breaks around `old`, which the window leaves
    out."""
    first = text_before_on_line(text, window.start)
    ahead, behind = (blanks.count("\n") for blanks in re.split(r"\S(?:[\s\S]*\S)?", old, maxsplit=1))
    theirs = drop_leading_blank_lines(drop_leading_blank_lines(new.split("\n"), ahead)[::-1], behind)[::-1]
    if first.strip():
        return "\n".join(theirs)
    moved = make_indenter(old.split("\n")[ahead : ahead + 1], [first + "x"], [0], theirs)
    lines = [moved(line, 0) for line in theirs]
    return "\n".join([lines[0].lstrip(" \t"), *lines[1:]])


def _trim_invented_trailing_whitespace(
    ours: Sequence[str], base: Sequence[str], pairs: Sequence[int | None], theirs: list[str]
) -> list[str]:
    """Return lines without trailing whitespace if the model added some to `old` that the file doesn't have."""
    made_up = any(n is not None and b != b.rstrip() and b.strip() for b, n in zip(base, pairs, strict=True))
    clean = all(line == line.rstrip() for line in ours if line.strip())
    return [line.rstrip() for line in theirs] if made_up and clean else theirs


@dataclass
class _LineMerge:
    """Three lists of lines; `pairs`: line of `base` → line of `ours`."""

    ours: Sequence[str]
    base: Sequence[str]
    theirs: Sequence[str]
    pairs: Sequence[int | None]

    def merged_lines(self) -> list[str]:
        move = make_indenter(self.base, self.ours, self.pairs, self.theirs)
        out: list[str] = []
        done, held = 0, list[str]()
        for tag, i1, i2, j1, j2 in self._compare_lines(move):
            first, stop = self._matching_range(i1, i2, done)
            gap = list(self.ours[done:first]) or held
            held = list[str]()
            if tag == "equal":
                out += _drop_duplicate_blank_lines(out, gap) + list(self.ours[first:stop])
            elif tag == "insert":
                out += self._insert_among_blank_lines(
                    gap, [move(line, i1) for line in self.theirs[j1:j2]], first
                )
            elif tag == "delete":
                held = gap  # keep the blank lines either before or after the removed ones
            else:
                new = self._merge_replacement(move, i1, i2, j1, j2, first, stop)
                out += _drop_duplicate_blank_lines(new, gap, gap_comes_first=True) + new
            done = stop
        return out + _drop_duplicate_blank_lines(out, list(self.ours[done:]) or held)

    def _compare_lines(self, indenter: Indenter) -> list[Op]:
        """Return how `theirs` differs from `base`, ignoring trailing whitespace."""
        base = [line.rstrip() for line in self.base]
        if indenter.as_in_file:
            base = [
                self._file_indent_of_base_line(at) + line.lstrip(" \t") if line else ""
                for at, line in enumerate(base)
            ]
        theirs = [line.rstrip() for line in self.theirs]
        return Comparison(base, theirs).get_opcodes()

    def _file_indent_of_base_line(self, line_number: int) -> str:
        number = self.pairs[line_number]
        return line_indent(self.base[line_number] if number is None else self.ours[number])

    def _matching_range(self, i1: int, i2: int, done: int) -> tuple[int, int]:
        """Return the lines of `ours` that correspond to lines `i1` to `i2` of `base`."""
        numbers = [n for n in self.pairs[i1:i2] if n is not None]
        if numbers:
            return numbers[0], numbers[-1] + 1
        after = self._next_paired_line_numbers[i2]
        return (after, after) if i1 == i2 else (done, done)

    @cached_property
    def _next_paired_line_numbers(self) -> list[int]:
        return next_paired_line_numbers(self.pairs, len(self.ours))

    def _insert_among_blank_lines(self, gap: list[str], new: list[str], following: int) -> list[str]:
        """Return inserted lines among blank lines that the file has and `old` lacks: next to the line before, or to
        the one after if only that one is as deep."""
        if not gap or not new[0].strip():
            return _drop_duplicate_blank_lines(new, gap, gap_comes_first=True) + new
        before = self.ours[following - len(gap) - 1] if following > len(gap) else ""
        after = self.ours[following] if following < len(self.ours) else before
        if (
            new[-1].strip()
            and line_indent(new[0]) != line_indent(before)
            and line_indent(new[0]) == line_indent(after)
        ):
            return gap + new
        return new + _drop_duplicate_blank_lines(new, gap)

    def _merge_replacement(
        self, indenter: Indenter, i1: int, i2: int, j1: int, j2: int, first: int, stop: int
    ) -> list[str]:
        theirs = [indenter(line, i1) for line in self.theirs[j1:j2]]
        ours = self.ours[first:stop]
        base = [
            line
            if indenter.as_in_file and self.pairs[i1 + n] is None
            else self._file_indent_of_base_line(i1 + n) + line.lstrip(" \t")
            for n, line in enumerate(self.base[i1:i2])
        ]
        if (
            not theirs
            or not base
            or [fold_typography(b).split() for b in base] == [fold_typography(o).split() for o in ours]
        ):
            return self._restore_typography(base, ours, theirs)
        return _merge_words("\n".join(ours), "\n".join(base), "\n".join(theirs)).split("\n")

    def _restore_typography(self, base: Sequence[str], ours: Sequence[str], theirs: list[str]) -> list[str]:
        """Restore the file's quotes and dashes in lines that differ from `old` by nothing else."""
        if (
            base
            and theirs
            and any(
                b != o and fold_typography(o) == fold_typography(b) for b, o in zip(base, ours, strict=False)
            )
        ):
            return _merge_words("\n".join(ours), "\n".join(base), "\n".join(theirs)).split("\n")
        return theirs


def _drop_duplicate_blank_lines(
    other: Sequence[str], gap: list[str], *, gap_comes_first: bool = False
) -> list[str]:
    """Return the gap's blank lines, minus those `other` already has next to it."""
    near = other if gap_comes_first else other[::-1]
    count = 0
    while count < min(len(near), len(gap)) and not near[count].strip():
        count += 1
    return gap[count:]


def _merge_words(ours: str, base: str, theirs: str) -> str:
    """Merge word by word; if both changed the same words, use `theirs`."""
    pieces = [_PIECE.findall(text) for text in (base, ours, theirs)]
    if max(map(len, pieces)) > _MOST_PIECES:
        return theirs
    changes = sorted(
        set(_word_replacements(pieces[0], pieces[1])) | set(_word_replacements(pieces[0], pieces[2]))
    )
    out: list[str] = []
    done, last = 0, (-1, -1)
    for start, stop, new in changes:
        if start < done or (start, stop) == last:
            return theirs
        out += [*pieces[0][done:start], *new]
        done, last = stop, (start, stop)
    return "".join([*out, *pieces[0][done:]])


def _word_replacements(base: list[str], other: list[str]) -> list[tuple[int, int, tuple[str, ...]]]:
    ops = Comparison(base, other).get_opcodes()
    return [(i1, i2, tuple(other[j1:j2])) for tag, i1, i2, j1, j2 in ops if tag != "equal"]


_FOLDED = {
    "'": "‘’‚‛′＇",
    '"': "“”„‟″＂",
    "-": "‐‑‒–—―−﹣－",
    " ": "\u00a0\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000",
}
_TO_PLAIN = {char: plain for plain, chars in _FOLDED.items() for char in chars}


def fold_typography(text: str) -> str:
    """Replace typographic quotes, dashes and spaces with ASCII; offsets don't change."""
    if text.isascii():
        return text
    for char, plain in _TO_PLAIN.items():
        if char in text:
            text = text.replace(char, plain)
    return text


def normalize_unicode_like(reference: str, piece: str) -> str:
    """`piece` normalised (NFC or NFD) like `reference`, if `reference` is consistently one of them."""
    if piece.isascii():
        return piece
    for form in ("NFC", "NFD"):
        if unicodedata.is_normalized(form, reference):
            return unicodedata.normalize(form, piece)
    return piece


def make_typography_normalizer(old: str, window: str) -> Callable[[str], str]:
    """Return a function that undoes, in new text, the typography by which `old` differs from the `window` of the file
    it matches; typographic characters of the file's own text stay."""
    made_up = {_TO_PLAIN[char] for char in old if char in _TO_PLAIN and char not in window}
    if made_up & {"'", '"'}:
        made_up |= {"'", '"'}
    table = {ord(char): plain for char, plain in _TO_PLAIN.items() if plain in made_up and char not in window}
    return lambda piece: piece.translate(table)


def text_before_on_line(text: str, offset: int) -> str:
    """Return what stands before a place on its line."""
    return text[text.rfind("\n", 0, offset) + 1 : offset]


def adapt_exact_replacement(text: str, window: Window, old: str, new: str) -> str:
    """Return `new` for a window that is exactly `old`, without the indentation that stands before it already."""
    blanks = text_before_on_line(text, window.start)
    behind = new.removeprefix(blanks)
    if blanks and not line_indent(old) and line_indent(new) == blanks and behind.strip() and behind != old:
        new = behind
    return keep_lines_separate(text, window, old, new, new)


def keep_lines_separate(text: str, window: Window, old: str, new: str, replacement: str) -> str:
    """Return `replacement` with the line break that the window has at an end and `new` lacks, where lines would run
    into each other; not if that is all the edit does, and not behind a blank, with which `new` goes on."""
    ours = text[window.start : window.end]
    if not replacement.strip() or new.strip() == old.strip():
        return replacement
    first = line_indent(replacement)
    if (
        ours.startswith("\n")
        and first
        and first == line_indent(ours[1:])
        and text_before_on_line(text, window.start)
    ):
        replacement = "\n" + replacement
    if (
        ours.endswith("\n")
        and not replacement[-1].isspace()
        and text[window.end : window.end + 1] not in ("", "\n")
    ):
        replacement += "\n"
    return replacement


def drop_leading_blank_lines(lines: list[str], max_count: int) -> list[str]:
    """Return lines without up to `max_count` blank ones at the beginning; one line stays."""
    while max_count and len(lines) > 1 and not lines[0].strip():
        lines, max_count = lines[1:], max_count - 1
    return lines


def first_line_indent(text: str) -> str:
    """Return the indentation of the first line that isn't blank."""
    return line_indent(next((line for line in text.split("\n") if line.strip()), ""))


def reindent_for_occurrence(text: str, occurrence: str, base_indent: str, new: str) -> str:
    """`new`, written for a text that `base_indent` indents, with the indentation of `occurrence`, which stands in
    `text` once."""
    at = text.find(occurrence)
    blanks = text_before_on_line(text, at) if at >= 0 and not occurrence.startswith("\n") else ""
    there = blanks + first_line_indent(occurrence)
    if (
        text.count(occurrence) != 1
        or blanks.strip()
        or base_indent == there
        or (not base_indent and first_line_indent(new) == there)
    ):
        return new
    moved = [
        there + line[len(base_indent) :] if line.strip() and line.startswith(base_indent) else line
        for line in new.split("\n")
    ]
    return "\n".join(moved).removeprefix(blanks)
