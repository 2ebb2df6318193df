"""merge: compute a window's replacement: the model's change applied to the file's actual text.

`old` doesn't quite match the file. So lines the model doesn't change stay as in the file; the others come from `new`,
with the file's indentation and typography (a three-way merge with `old` as its base).
"""

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from interlock.tools._diff import Comparison
from interlock.tools.matcher.ends import apart, before, without_blanks
from interlock.tools.matcher.windows import Window, following, indent

_PIECE = re.compile(r"\w+|\n[^\S\n]*|[^\S\n]+|[^\w\s]")
_MOST_PIECES = 2_000
"""Maximum pieces of lines merged word by word; the comparison is quadratic."""

Op = tuple[Literal["replace", "delete", "insert", "equal"], int, int, int, int]
_TAB = 4
"""Default tab width in columns."""


@dataclass(frozen=True)
class Pair:
    """A line of `old` and its counterpart in the file: their indentations, and the position in `old`."""

    at: int
    model: str
    file: str


@dataclass(frozen=True)
class Indenter:
    """Converts lines from the model's indentation to the file's."""

    pairs: tuple[Pair, ...]
    as_in_file: bool
    """The new lines already have the file's indentation, whatever `old` has."""

    def __call__(self, line: str, at: int) -> str:
        """Reindent `line`, which is inserted at line `at` of `old`."""
        bare = line.lstrip(" \t")
        if self.as_in_file or not bare or not self.pairs:
            return line
        mine = indent(line)
        model, file = self._nearest(mine, at)
        if mine.startswith(model):
            return file + self._in_style(mine[len(model) :]) + bare
        if model.startswith(mine):
            return _shortened(file, self._in_style(model[len(mine) :])) + bare
        return line

    def _nearest(self, mine: str, at: int) -> tuple[str, str]:
        """Among the pairs most similar in indentation, the one nearest to the line."""
        if mine not in self._likest:
            best = max(_rank(model, mine) for model in self._by_model)
            likest = [m for m in self._by_model if _rank(m, mine) == best]
            self._likest[mine] = sorted((p for m in likest for p in self._by_model[m]), key=lambda p: p.at)
        pairs = self._likest[mine]
        number = bisect_left(pairs, at, key=lambda pair: pair.at)
        pair = min(pairs[max(0, number - 1) : number + 1], key=lambda pair: abs(pair.at - at))
        return pair.model, pair.file

    @cached_property
    def _by_model(self) -> dict[str, list[Pair]]:
        found: dict[str, list[Pair]] = {}
        for pair in self.pairs:
            found.setdefault(pair.model, []).append(pair)
        return found

    @cached_property
    def _likest(self) -> dict[str, list[Pair]]:
        return {}

    @cached_property
    def _style(self) -> set[str]:
        return set("".join(pair.file for pair in self.pairs))

    def _in_style(self, extra: str) -> str:
        """Extra indentation in the file's characters."""
        if not extra or not self._style:
            return extra
        if self._style == {"\t"} and set(extra) == {" "}:
            return "\t" * max(1, round(len(extra) / self._width))
        if self._style == {" "} and set(extra) == {"\t"}:
            return " " * round(len(extra) * self._width)
        return extra

    @cached_property
    def _width(self) -> float:
        """Spaces per tab, from the deepest pair that shows it."""
        seen = [
            (max(len(p.model), len(p.file)), min(len(p.model), len(p.file)))
            for p in self.pairs
            if {frozenset(p.model), frozenset(p.file)} == {frozenset(" "), frozenset("\t")}
        ]
        return max(seen)[0] / max(seen)[1] if seen else _TAB


def _rank(known: str, mine: str) -> tuple[int, int]:
    """Rank: same indentation, then the deepest that `mine` extends, then the shallowest that extends `mine`."""
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
    """Build from the paired lines of `old` and of the window, and the new lines."""
    known = tuple(
        Pair(at, indent(base[at]), indent(ours[number]))
        for at, number in enumerate(pairs)
        if number is not None and base[at].strip() and ours[number].strip()
    )
    if all(pair.model == pair.file for pair in known):
        return Indenter((), as_in_file=True)
    return _by_first_line(known, new) or _by_shared_lines(known, base, new)


def _by_shared_lines(known: tuple[Pair, ...], base: Sequence[str], new: Sequence[str]) -> Indenter:
    """Lines shared by `old` and `new` tell whether both are indented alike, or `new` like the file."""
    by_line = {pair.at: pair for pair in known}
    as_model = as_file = 0
    shared = Comparison([b.strip() for b in base], [n.strip() for n in new])
    for i, j, size in shared.get_matching_blocks():
        for step in range(size):
            pair = by_line.get(i + step)
            if pair is not None and pair.model != pair.file:
                as_model += indent(new[j + step]) == pair.model
                as_file += indent(new[j + step]) == pair.file
    first = indent(next((line for line in new if line.strip()), ""))
    unlike = as_file == as_model and first == known[0].file != known[0].model
    return Indenter(known, as_in_file=as_file > as_model or unlike)


def _by_first_line(known: tuple[Pair, ...], new: Sequence[str]) -> Indenter | None:
    """Assume that the first lines of `old` and `new` have the same depth (gemini-cli's rule).

    Only decides if the new text starts at a depth that neither `old` nor the file has there.
    """
    first = next((line for line in new if line.strip()), "")
    mine = indent(first)
    if not known or any(mine in (pair.model, pair.file) for pair in known):
        return None
    return Indenter((Pair(0, mine, known[0].file),), as_in_file=False)


def merged(text: str, window: Window, old: str, new: str) -> str:
    """`new` for a window that is like `old`."""
    return apart(text, window, old, new, _merged(text, window, old, new))


def _merged(text: str, window: Window, old: str, new: str) -> str:
    ours = text[window.start : window.end]
    plain = plainer(old, ours)
    if window.pairs is None:
        return _whole(text, window, old, plain(new))
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
    merge = _Merge(mine, base, _trimmed(mine, base, window.pairs, list(map(plain, theirs))), window.pairs)
    ended = "\n" if both and ends else ""
    return "\n".join(merge.lines()) + ended


def _whole(text: str, window: Window, old: str, new: str) -> str:
    """`new`, reindented to the window's start, without the line breaks around `old`, which the window leaves out."""
    first = before(text, window.start)
    ahead, behind = (blanks.count("\n") for blanks in re.split(r"\S(?:[\s\S]*\S)?", old, maxsplit=1))
    theirs = without_blanks(without_blanks(new.split("\n"), ahead)[::-1], behind)[::-1]
    if first.strip():
        return "\n".join(theirs)
    moved = indenter(old.split("\n")[ahead : ahead + 1], [first + "x"], [0], theirs)
    lines = [moved(line, 0) for line in theirs]
    return "\n".join([lines[0].lstrip(" \t"), *lines[1:]])


def _trimmed(
    ours: Sequence[str], base: Sequence[str], pairs: Sequence[int | None], theirs: list[str]
) -> list[str]:
    """Strip trailing whitespace if the model added some to `old` that the file doesn't have."""
    made_up = any(n is not None and b != b.rstrip() and b.strip() for b, n in zip(base, pairs, strict=True))
    clean = all(line == line.rstrip() for line in ours if line.strip())
    return [line.rstrip() for line in theirs] if made_up and clean else theirs


@dataclass
class _Merge:
    """Three lists of lines; `pairs`: line of `base` → line of `ours`."""

    ours: Sequence[str]
    base: Sequence[str]
    theirs: Sequence[str]
    pairs: Sequence[int | None]

    def lines(self) -> list[str]:
        move = indenter(self.base, self.ours, self.pairs, self.theirs)
        out: list[str] = []
        done, held = 0, list[str]()
        for tag, i1, i2, j1, j2 in self._changes(move):
            first, stop = self._reach(i1, i2, done)
            gap = list(self.ours[done:first]) or held
            held = list[str]()
            if tag == "equal":
                out += _joined(out, gap) + list(self.ours[first:stop])
            elif tag == "insert":
                out += self._inserted(gap, [move(line, i1) for line in self.theirs[j1:j2]], first)
            elif tag == "delete":
                held = gap  # keep the blank lines either before or after the removed ones
            else:
                new = self._new(move, i1, i2, j1, j2, first, stop)
                out += _joined(new, gap, before=True) + new
            done = stop
        return out + _joined(out, list(self.ours[done:]) or held)

    def _changes(self, move: Indenter) -> list[Op]:
        """How `theirs` differs from `base`, ignoring trailing whitespace."""
        base = [line.rstrip() for line in self.base]
        if move.as_in_file:
            base = [self._depth(at) + line.lstrip(" \t") if line else "" for at, line in enumerate(base)]
        theirs = [line.rstrip() for line in self.theirs]
        return Comparison(base, theirs).get_opcodes()

    def _depth(self, at: int) -> str:
        number = self.pairs[at]
        return indent(self.base[at] if number is None else self.ours[number])

    def _reach(self, i1: int, i2: int, done: int) -> tuple[int, int]:
        """The lines of `ours` that correspond to lines `i1` to `i2` of `base`."""
        numbers = [n for n in self.pairs[i1:i2] if n is not None]
        if numbers:
            return numbers[0], numbers[-1] + 1
        after = self._following[i2]
        return (after, after) if i1 == i2 else (done, done)

    @cached_property
    def _following(self) -> list[int]:
        return following(self.pairs, len(self.ours))

    def _inserted(self, gap: list[str], new: list[str], following: int) -> list[str]:
        """Insert among blank lines that the file has and `old` lacks: next to the line before, or to the one after if
        only that one is as deep."""
        if not gap or not new[0].strip():
            return _joined(new, gap, before=True) + new
        before = self.ours[following - len(gap) - 1] if following > len(gap) else ""
        after = self.ours[following] if following < len(self.ours) else before
        if new[-1].strip() and indent(new[0]) != indent(before) and indent(new[0]) == indent(after):
            return gap + new
        return new + _joined(new, gap)

    def _new(self, move: Indenter, i1: int, i2: int, j1: int, j2: int, first: int, stop: int) -> list[str]:
        theirs = [move(line, i1) for line in self.theirs[j1:j2]]
        ours = self.ours[first:stop]
        base = [
            line
            if move.as_in_file and self.pairs[i1 + n] is None
            else self._depth(i1 + n) + line.lstrip(" \t")
            for n, line in enumerate(self.base[i1:i2])
        ]
        if not theirs or not base or [fold(b).split() for b in base] == [fold(o).split() for o in ours]:
            return self._typography(base, ours, theirs)
        return _words("\n".join(ours), "\n".join(base), "\n".join(theirs)).split("\n")

    def _typography(self, base: Sequence[str], ours: Sequence[str], theirs: list[str]) -> list[str]:
        """Restore the file's quotes and dashes in lines that differ from `old` by nothing else."""
        if base and theirs and any(b != o and fold(o) == fold(b) for b, o in zip(base, ours, strict=False)):
            return _words("\n".join(ours), "\n".join(base), "\n".join(theirs)).split("\n")
        return theirs


def _joined(other: Sequence[str], gap: list[str], *, before: bool = False) -> list[str]:
    """The gap's blank lines, minus those `other` already has next to it."""
    near = other if before else other[::-1]
    count = 0
    while count < min(len(near), len(gap)) and not near[count].strip():
        count += 1
    return gap[count:]


def _words(ours: str, base: str, theirs: str) -> str:
    """Merge word by word; if both changed the same words, use `theirs`."""
    pieces = [_PIECE.findall(text) for text in (base, ours, theirs)]
    if max(map(len, pieces)) > _MOST_PIECES:
        return theirs
    changes = sorted(set(_replacements(pieces[0], pieces[1])) | set(_replacements(pieces[0], pieces[2])))
    out: list[str] = []
    done, last = 0, (-1, -1)
    for start, stop, new in changes:
        if start < done or (start, stop) == last:
            return theirs
        out += [*pieces[0][done:start], *new]
        done, last = stop, (start, stop)
    return "".join([*out, *pieces[0][done:]])


def _replacements(base: list[str], other: list[str]) -> list[tuple[int, int, tuple[str, ...]]]:
    ops = Comparison(base, other).get_opcodes()
    return [(i1, i2, tuple(other[j1:j2])) for tag, i1, i2, j1, j2 in ops if tag != "equal"]


_FOLDED = {
    "'": "‘’‚‛′＇",
    '"': "“”„‟″＂",
    "-": "‐‑‒–—―−﹣－",
    " ": "\u00a0\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000",
}
_TO_PLAIN = {char: plain for plain, chars in _FOLDED.items() for char in chars}


def fold(text: str) -> str:
    """Replace typographic quotes, dashes and spaces with ASCII; offsets don't change."""
    if text.isascii():
        return text
    for char, plain in _TO_PLAIN.items():
        if char in text:
            text = text.replace(char, plain)
    return text


def in_form_of(text: str, piece: str) -> str:
    """`piece` normalised (NFC or NFD) like `text`, if `text` is consistently one of them."""
    if piece.isascii():
        return piece
    for form in ("NFC", "NFD"):
        if unicodedata.is_normalized(form, text):
            return unicodedata.normalize(form, piece)
    return piece


@dataclass(frozen=True)
class Plainer:
    """Undoes, in new text, typography that the model introduced into `old`."""

    families: str
    """ASCII characters for which the model made up typographic variants."""
    kept: str
    """Typographic characters in the file's own text."""

    def __call__(self, piece: str) -> str:
        if not self.families or piece.isascii():
            return piece
        return "".join(self._plain(char) for char in piece)

    def _plain(self, char: str) -> str:
        plain = _TO_PLAIN.get(char)
        return plain if plain and plain in self.families and char not in self.kept else char


def plainer(old: str, window: str) -> Plainer:
    """Build from the differences between `old` and the `window` of the file it matches."""
    made_up = {_TO_PLAIN[char] for char in old if char in _TO_PLAIN and char not in window}
    if made_up & {"'", '"'}:
        made_up |= {"'", '"'}
    kept = "".join(char for char in set(window) if char in _TO_PLAIN)
    return Plainer("".join(made_up), kept)
