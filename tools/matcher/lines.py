"""lines: windows of whole lines that are `old` but for whitespace.

They are found by `old`'s longest line, so that a large file isn't split into lines.
"""

import re
from collections.abc import Callable, Iterator

from interlock.tools.matcher.windows import Window

Key = Callable[[str], str]
"""What of a line must agree."""


def old_lines(old: str) -> list[str]:
    """Lines of a string to be found; a final newline starts no further line."""
    return old.removesuffix("\n").split("\n")


def line_windows(text: str, old: str) -> list[Window]:
    """By the strictest comparison that finds any: trailing blanks, then indentation too, then blank lines too."""
    wanted = old_lines(old)
    if not any(line.strip() for line in wanted):
        return []
    for key in (str.rstrip, str.strip):
        windows = list(_alike(text, wanted, key, old.endswith("\n")))
        if windows:
            return windows
    return list(_but_blank_lines(text, wanted, old.endswith("\n")))


def _alike(text: str, wanted: list[str], key: Key, tail: bool) -> Iterator[Window]:
    anchor = max(range(len(wanted)), key=lambda index: len(wanted[index].strip()))
    keys = [key(line) for line in wanted]
    for place in _lines_with(text, wanted[anchor].strip()):
        start = _back(text, place, anchor)
        end = start
        for index, expected in enumerate(keys):
            if end is None or start is None or end > len(text):
                break
            stop = _line_end(text, end)
            if key(text[end:stop]) != expected:
                break
            if index == len(keys) - 1:
                yield Window(start, _with_tail(text, stop, tail), tuple(range(len(keys))))
            end = stop + 1


def _but_blank_lines(text: str, wanted: list[str], tail: bool) -> Iterator[Window]:
    """Blank lines may be more or fewer; the window begins and ends with a line that isn't blank."""
    full = [index for index, line in enumerate(wanted) if line.strip()]
    keys = [wanted[index].strip() for index in full]
    anchor = max(range(len(keys)), key=lambda index: len(keys[index]))
    for place in _lines_with(text, keys[anchor]):
        above = _walk(text, place, keys[:anchor][::-1], forward=False)
        below = _walk(text, place, keys[anchor:], forward=True)
        if above is None or below is None:
            continue
        starts = [*above[::-1], *below]
        yield blank_tolerant(text, wanted, starts, tail)


def blank_tolerant(text: str, wanted: list[str], starts: list[int], tail: bool) -> Window:
    """The window of lines that start at `starts`, one for each line of `wanted` that isn't blank."""
    full = [index for index, line in enumerate(wanted) if line.strip()]
    start = _over_blanks(text, starts[0], full[0], forward=False)
    last = _line_end(text, starts[-1])
    end = _over_blanks(text, last, len(wanted) - 1 - full[-1], forward=True)
    numbers = [text.count("\n", start, place) for place in starts]
    pairs: list[int | None] = [None] * len(wanted)
    for index, number in zip(full, numbers, strict=True):
        pairs[index] = number
    _pair_blanks(pairs, text.count("\n", start, end) + 1)
    return Window(start, _with_tail(text, end, tail), tuple(pairs))


def _pair_blanks(pairs: list[int | None], count: int) -> None:
    """Blank lines of both sides stand for each other, from the top of each gap."""
    after = -1
    for index, number in enumerate(pairs):
        if number is not None:
            after = number
            continue
        limit = next((n for n in pairs[index:] if n is not None), count)
        if after + 1 < limit:
            after += 1
            pairs[index] = after


def _lines_with(text: str, bare: str) -> Iterator[int]:
    """Starts of the lines that hold `bare` and whitespace only."""
    place = text.find(bare)
    while place >= 0:
        start = text.rfind("\n", 0, place) + 1
        stop = _line_end(text, place)
        if text[start:stop].strip() == bare:
            yield start
        place = text.find(bare, max(place + 1, stop))


def _back(text: str, start: int, lines: int) -> int | None:
    """Start of the line so many lines above."""
    for _ in range(lines):
        if start == 0:
            return None
        start = text.rfind("\n", 0, start - 1) + 1
    return start


def _walk(text: str, start: int, keys: list[str], *, forward: bool) -> list[int] | None:
    """Starts of the next lines that aren't blank, if they are `keys`. Backward the line at `start` isn't looked at."""
    found: list[int] = []
    at: int | None = start if forward else _back(text, start, 1)
    while len(found) < len(keys):
        if at is None or at > len(text):
            return None
        stop = _line_end(text, at)
        bare = text[at:stop].strip()
        if bare:
            if bare != keys[len(found)]:
                return None
            found.append(at)
        elif stop == len(text) and forward:
            return None
        at = stop + 1 if forward else _back(text, at, 1)
    return found


def _over_blanks(text: str, place: int, most: int, *, forward: bool) -> int:
    """`place`, a line's start or end, moved over up to `most` blank lines."""
    for _ in range(most):
        if forward:
            if place >= len(text) - 1:
                return place
            stop = _line_end(text, place + 1)
            if text[place + 1 : stop].strip():
                return place
            place = stop
        else:
            start = _back(text, place, 1)
            if start is None or text[start : place - 1].strip():
                return place
            place = start
    return place


def _line_end(text: str, start: int) -> int:
    stop = text.find("\n", start)
    return len(text) if stop < 0 else stop


def _with_tail(text: str, stop: int, tail: bool) -> int:
    return min(stop + 1, len(text)) if tail else stop


TOKEN = re.compile(r"\w+|[^\w\s]")
_MOST = 4_000
"""Tokens of `old`; compiling the expression takes 0.1 s then."""
_SHORTEST = 2
"""Fewer tokens say too little about a place."""


def token_windows(text: str, old: str) -> list[Window]:
    """Beginning with a line, after its indentation. Words stay apart: `return x` isn't `returnx`."""
    tokens: list[str] = TOKEN.findall(old)
    if not _SHORTEST <= len(tokens) <= _MOST or max(tokens, key=len) not in text:
        return []
    pattern = re.compile(r"^[^\S\n]*" + "".join(_joined(tokens)), re.MULTILINE)
    return list(_found(text, pattern))


def _joined(tokens: list[str]) -> Iterator[str]:
    """Only escaped tokens and runs of whitespace between them: nothing for the expression to try twice."""
    before = ""
    for token in tokens:
        if before:
            yield r"\s+" if _is_word(before) and _is_word(token) else r"\s*"
        yield re.escape(token)
        before = token
    yield r"(?!\w)" if _is_word(before) else ""


def _is_word(token: str) -> bool:
    return token[0].isalnum() or token[0] == "_"


def _found(text: str, pattern: re.Pattern[str]) -> Iterator[Window]:
    """Overlapping ones too: whether one of them is meant is decided by who counts them."""
    found = pattern.search(text)
    while found is not None:
        start = found.end() - len(found[0].lstrip())
        yield Window(start, found.end())
        following = text.find("\n", found.start())
        if following < 0:
            return
        found = pattern.search(text, following + 1)
