"""windows: find pieces of a text that may be the one an edit refers to."""

import re
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal

Strategy = Literal["exact", "typography", "whitespace", "tokens", "fuzzy"]
MOST_NAMED = 100
"""Places listed in a miscount."""


@dataclass(frozen=True)
class Window:
    """A piece of the text, by offsets, that matches `old`.

    `pairs` maps each line of `old` to a line of the window, null if it has none; without `pairs` the two don't match
    line by line.
    """

    start: int
    end: int
    pairs: tuple[int | None, ...] | None = None


@dataclass(frozen=True)
class Span:
    """A part of a text, and what replaces it."""

    start: int
    end: int
    new: str


@dataclass(frozen=True)
class Match:
    """As many windows as expected, in order, without overlaps."""

    strategy: Strategy
    spans: tuple[Span, ...]


@dataclass(frozen=True)
class Miscount:
    """Windows were found, but not as many as expected, or the intended one is ambiguous."""

    strategy: Strategy
    count: int
    places: tuple[int, ...]
    """Offsets of the first ones."""
    overlapping: bool = False
    """The windows overlap, so replacing them from the top or from the bottom gives different texts."""


@dataclass(frozen=True)
class Windows:
    """What a strategy found: as many non-overlapping windows as fit, chosen from the top and from the end."""

    from_top: Sequence[Window]
    from_end: Sequence[Window]
    near: Sequence[int]
    """Offsets of the first windows, including overlapping ones."""


MOST_WORK = 60_000_000
"""Characters and tokens that the edits of one call may compare: 3 s. Exact text isn't counted."""


class TooMuchWork(Exception):  # noqa: N818 - no fault: the text is too much alike everywhere
    """A call has used up its comparisons. Counted, not timed, so that a repeated call has the same result."""


@dataclass
class WorkBudget:
    """Comparisons left for a call, whatever its edits and their strategies spend them on."""

    left: int = MOST_WORK
    check: Callable[[], None] = lambda: None
    """Raises if the call is to end."""

    def spend(self, count: int) -> None:
        """Count comparisons. Raise `TooMuchWork` if none are left."""
        self.check()
        self.left -= count
        if self.left < 0:
            raise TooMuchWork


def choose_windows_from_both_ends(windows: Sequence[Window]) -> Windows:
    """Return what a strategy found, built from all windows in order, including overlapping ones."""
    near = [window.start for window in windows[:MOST_NAMED]]
    return Windows(choose_non_overlapping(windows), choose_non_overlapping(windows, from_end=True), near)


def choose_non_overlapping(windows: Sequence[Window], *, from_end: bool = False) -> list[Window]:
    """Return as many non-overlapping windows as fit, chosen from the top or from the end; in order."""
    chosen: list[Window] = []
    for window in reversed(windows) if from_end else windows:
        if not chosen or (window.end <= chosen[-1].start if from_end else window.start >= chosen[-1].end):
            chosen.append(window)
    return chosen[::-1] if from_end else chosen


@dataclass(frozen=True)
class Occurrences:
    """Offsets of a string in a text; fields as in `Windows`."""

    from_top: Sequence[int]
    from_end: Sequence[int]
    near: Sequence[int]


def find_occurrences(text: str, sought: str, *, shared_chars: int = 0) -> Occurrences:
    """Return where a string stands, in linear time, however much it overlaps itself. Neighbours may share the last
    `shared_chars` characters."""
    step = len(sought) - shared_chars
    from_top = list(_iterate_occurrences(text, sought, step))
    near = list(islice(_iterate_occurrences(text, sought, 1), MOST_NAMED))
    # Only a place that overlaps another can be skipped.
    overlap = any(text.find(sought, at + 1, at + step - 1 + len(sought)) >= 0 for at in from_top)
    if not overlap:
        return Occurrences(from_top, from_top, near)
    # Find the last ones by searching forward: `rfind` is quadratic.
    last = len(text) - len(sought)
    turned = [last - at for at in _iterate_occurrences(text[::-1], sought[::-1], step)]
    return Occurrences(from_top, turned[::-1], near)


def find_first_occurrences(text: str, sought: str, *, shared_chars: int = 0) -> list[int]:
    """Return the first `MOST_NAMED` places that don't overlap, but for `shared_chars` characters."""
    return list(islice(_iterate_occurrences(text, sought, len(sought) - shared_chars), MOST_NAMED))


def _iterate_occurrences(text: str, sought: str, step: int) -> Iterator[int]:
    at = text.find(sought) if sought else -1
    while at >= 0:
        yield at
        at = text.find(sought, at + step)


def replace_spans(text: str, spans: Sequence[Span]) -> str:
    """Return `text` with each span's window replaced."""
    pieces: list[str] = []
    done = 0
    for span in spans:
        pieces += [text[done : span.start], span.new]
        done = span.end
    return "".join([*pieces, text[done:]])


TOKEN = re.compile(r"\w+|[^\w\s]")
_BLOCK = 500_000
"""Characters split into lines at a time, so that a large text isn't held twice."""
_MOST_TOKENS = 4_000
"""Maximum tokens of `old`; compiling the regex then takes 0.1 s."""
_LEAST_TOKENS = 2
"""Fewer tokens are too ambiguous."""
_FIRST_TOKENS = 8
"""A place that starts with these is compared to the end."""
_WINDOW = 10
"""Characters that take as long to compare as one window to build."""


def line_indent(line: str) -> str:
    """Return the spaces and tabs that a line begins with."""
    return line[: len(line) - len(line.lstrip(" \t"))]


def split_search_lines(old: str) -> list[str]:
    """Return the lines of a search string; a final newline doesn't start another line."""
    return old.removesuffix("\n").split("\n")


def find_line_windows(text: str, old: str, work: WorkBudget) -> Windows:
    """Return windows by the strictest comparison with a hit: ignoring trailing whitespace, then indentation, then
    blank lines."""
    wanted = split_search_lines(old)
    longest = max((line.strip() for line in wanted), key=len)
    found = Windows((), (), ())
    if longest and longest in text:
        for key, blank in ((str.rstrip, True), (str.strip, True), (str.strip, False)):
            if not found.from_top:
                work.spend(len(text))
                found = _find_equal_line_windows(text, wanted, key, blank, old.endswith("\n"), work)
    return found


def _find_equal_line_windows(
    text: str,
    wanted: list[str],
    key: Callable[[str], str],
    keep_blank: bool,
    include_final_break: bool,
    work: WorkBudget,
) -> Windows:
    """Return windows whose lines equal `wanted` by `key`; unless `keep_blank`, blank lines of both are ignored."""
    keys = [key(line) for line in wanted if keep_blank or line.strip()]
    lines = _join_line_keys(text, key, keep_blank)
    at = find_occurrences(lines, "\n".join(["", *keys, ""]), shared_chars=1)
    if not at.from_top:
        return Windows((), (), ())
    work.spend(_WINDOW * len(at.from_top))
    starts = LineIndex(text, blank=keep_blank).starts
    same = tuple(range(len(keys)))

    def window(number: int) -> Window:
        if not keep_blank:
            return build_window_ignoring_blank_lines(
                text, wanted, starts[number : number + len(keys)], include_final_break
            )
        after = number + len(keys)
        stop = starts[after] - 1 if after < len(starts) else len(text)
        return Window(starts[number], _window_end_offset(text, stop, include_final_break), same)

    from_top, from_end, near = (
        _line_numbers_at_offsets(lines, offsets) for offsets in (at.from_top, at.from_end, at.near)
    )
    top = choose_non_overlapping([window(number) for number in from_top])
    end = (
        choose_non_overlapping([window(number) for number in from_end], from_end=True)
        if at.from_end is not at.from_top
        else top
    )
    return Windows(top, end, [starts[number] for number in near])


def _join_line_keys(text: str, key: Callable[[str], str], keep_blank: bool) -> str:
    """Return each key between two line breaks; `join` would need twice the memory."""
    lines = "\n"
    for part in _iterate_line_key_blocks(text, key, keep_blank):
        lines += part  # grows in place, as no closure holds it
        lines += "\n"
    return lines


def _iterate_line_key_blocks(text: str, key: Callable[[str], str], keep_blank: bool) -> Iterator[str]:
    """Yield the lines' keys, in blocks."""
    done = 0
    while done <= len(text):
        stop = text.find("\n", done + _BLOCK)
        stop = len(text) if stop < 0 else stop
        keys = map(key, text[done:stop].split("\n"))
        part = list(keys) if keep_blank else [line for line in keys if line]
        if part:
            yield "\n".join(part)
        done = stop + 1


def _line_numbers_at_offsets(lines: str, offsets: Sequence[int]) -> list[int]:
    """Numbers of the lines that end before the line breaks at `offsets`."""
    numbers: list[int] = []
    done = count = 0
    for offset in offsets:
        count += lines.count("\n", done, offset)
        done = offset
        numbers.append(count)
    return numbers


class LineIndex:
    """A text's lines by their start offsets, blank ones only with `blank`; avoids holding a large text twice."""

    def __init__(self, text: str, *, blank: bool) -> None:
        self.text = text
        self.starts = array("Q")
        place = 0
        while 0 <= place <= len(text):
            stop = text.find("\n", place)
            if blank or text[place : len(text) if stop < 0 else stop].strip():
                self.starts.append(place)
            place = stop + 1 if stop >= 0 else -1

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, index: int) -> str:
        start = self.starts[index]
        return self.text[start : _line_end_offset(self.text, start)]


def build_window_ignoring_blank_lines(
    text: str, wanted: list[str], starts: Sequence[int], include_final_break: bool
) -> Window:
    """Return the window of lines starting at `starts`, one for each non-blank line of `wanted`."""
    full = [index for index, line in enumerate(wanted) if line.strip()]
    start = _skip_blank_lines(text, starts[0], full[0], forward=False)
    last = _line_end_offset(text, starts[-1])
    end = _skip_blank_lines(text, last, len(wanted) - 1 - full[-1], forward=True)
    pairs: list[int | None] = [None] * len(wanted)
    done, number = start, 0
    for index, place in zip(full, starts, strict=True):
        number += text.count("\n", done, place)
        pairs[index], done = number, place
    _pair_blank_lines(pairs, text.count("\n", start, end) + 1)
    return Window(start, _window_end_offset(text, end, include_final_break), tuple(pairs))


def _pair_blank_lines(pairs: list[int | None], count: int) -> None:
    """Pair blank lines of both sides, from the top of each gap."""
    limits = next_paired_line_numbers(pairs, count)
    after = -1
    for index, number in enumerate(pairs):
        if number is not None:
            after = number
        elif after + 1 < limits[index]:
            after += 1
            pairs[index] = after


def next_paired_line_numbers(pairs: Sequence[int | None], default: int) -> list[int]:
    """Return for each position the next number at or after it, `default` if none; one entry longer than `pairs`."""
    found = [default]
    for number in reversed(pairs):
        found.append(found[-1] if number is None else number)
    return found[::-1]


def _skip_blank_lines(text: str, offset: int, max_lines: int, *, forward: bool) -> int:
    """Return `offset`, a line's start or end, moved over up to `max_lines` blank lines."""
    for _ in range(max_lines):
        if forward:
            if offset >= len(text) - 1:
                return offset
            stop = _line_end_offset(text, offset + 1)
            if text[offset + 1 : stop].strip():
                return offset
            offset = stop
        else:
            if offset == 0:
                return offset
            start = text.rfind("\n", 0, offset - 1) + 1
            if text[start : offset - 1].strip():
                return offset
            offset = start
    return offset


def _line_end_offset(text: str, start: int) -> int:
    stop = text.find("\n", start)
    return len(text) if stop < 0 else stop


def _window_end_offset(text: str, stop: int, include_final_break: bool) -> int:
    return min(stop + 1, len(text)) if include_final_break else stop


def find_token_windows(text: str, old: str, work: WorkBudget) -> Windows:
    """Return windows with the same words, which start a line, after its indentation, and end one if `old` does. Words
    stay separate: `return x` doesn't match `returnx`."""
    tokens: list[str] = TOKEN.findall(old)
    if not _LEAST_TOKENS <= len(tokens) <= _MOST_TOKENS or max(tokens, key=len) not in text:
        return Windows((), (), ())
    begin, whole = (
        re.compile(r"^[^\S\n]*+" + "".join(_token_regex_parts(some)) + end, re.MULTILINE)
        for some, end in (
            (tokens[:_FIRST_TOKENS], ""),
            (tokens, _LINE_END if _has_final_line_break(old) else ""),
        )
    )
    work.spend(len(text))
    found = list(_iterate_match_windows(text, begin, whole, work, len(tokens)))
    bare = old.strip()
    if found and not old[0].isspace() and text.count(bare) > len(found):  # within a line it is as good
        found = [Window(at, at + len(bare)) for at in find_occurrences(text, bare).from_top]
    return choose_windows_from_both_ends(found)


_LINE_END = r"(?=[^\S\n]*+$)"


def _has_final_line_break(old: str) -> bool:
    return "\n" in old[len(old.rstrip()) :]


def _token_regex_parts(tokens: list[str]) -> Iterator[str]:
    """Yield escaped tokens with whitespace between, so that the regex can't backtrack."""
    before = ""
    for token in tokens:
        if before:
            yield r"\s++" if _is_word(before) and _is_word(token) else r"\s*+"
        yield re.escape(token)
        before = token
    yield r"(?!\w)" if _is_word(before) else ""


def _is_word(token: str) -> bool:
    return token[0].isalnum() or token[0] == "_"


def _iterate_match_windows(
    text: str, begin: re.Pattern[str], whole: re.Pattern[str], work: WorkBudget, cost: int
) -> Iterator[Window]:
    """Yield windows that match, overlapping ones, too: whoever counts them decides which is meant."""
    found = begin.search(text)
    while found is not None:
        work.spend(cost + 40)
        if match := whole.match(text, found.start()):
            yield Window(match.end() - len(match[0].lstrip()), match.end())
        next_line = text.find("\n", found.start())
        if next_line < 0:
            return
        found = begin.search(text, next_line + 1)
