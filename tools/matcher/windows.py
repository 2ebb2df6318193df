"""windows: pieces of a text that may stand for the one that an edit names."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal

Strategy = Literal["exact", "typography", "whitespace", "tokens", "fuzzy"]
MOST_NAMED = 100
"""Places that a miscount names."""


@dataclass(frozen=True)
class Window:
    """A piece of the text, by offsets, that stands for `old`.

    `pairs` holds for each line of `old` the line of the window that it stands for, null where there is none; without
    `pairs` the two don't agree line by line.
    """

    start: int
    end: int
    pairs: tuple[int | None, ...] | None = None


@dataclass(frozen=True)
class Span:
    """A window and what comes in its place."""

    start: int
    end: int
    new: str


@dataclass(frozen=True)
class Match:
    """As many windows as were expected, in order, none overlapping another."""

    strategy: Strategy
    spans: tuple[Span, ...]


@dataclass(frozen=True)
class Miscount:
    """Windows were found, but not as many as were expected, or which of them is meant can't be known."""

    strategy: Strategy
    count: int
    places: tuple[int, ...]
    """Offsets of the first of them."""
    overlapping: bool = False
    """The windows overlap, so that replacing them from the top or from the bottom gives different texts."""


@dataclass(frozen=True)
class Windows:
    """What a strategy found: as many windows as fit without overlap, chosen from the top and from the end."""

    from_top: Sequence[Window]
    from_end: Sequence[Window]
    near: Sequence[int]
    """Offsets of the first windows, overlapping ones too."""


class TooMuchWork(Exception):  # noqa: N818 - no fault: the text is too much alike everywhere
    """A strategy has compared as much as it may. Counted, not timed: a call that is made again says the same."""


@dataclass
class Work:
    """Comparisons that are left to a strategy."""

    left: int

    def spend(self, count: int) -> None:
        self.left -= count
        if self.left < 0:
            raise TooMuchWork


def windows_of(windows: Sequence[Window]) -> Windows:
    """Of all windows, in order, overlapping ones too."""
    near = [window.start for window in windows[:MOST_NAMED]]
    return Windows(packed(windows), packed(windows, from_end=True), near)


def packed(windows: Sequence[Window], *, from_end: bool = False) -> list[Window]:
    """As many windows as fit without overlap, chosen from the top or from the end; in order."""
    chosen: list[Window] = []
    for window in reversed(windows) if from_end else windows:
        if not chosen or (window.end <= chosen[-1].start if from_end else window.start >= chosen[-1].end):
            chosen.append(window)
    return chosen[::-1] if from_end else chosen


@dataclass(frozen=True)
class Places:
    """Offsets at which a string stands in a text, as in `Windows`."""

    from_top: Sequence[int]
    from_end: Sequence[int]
    near: Sequence[int]


def places(text: str, sought: str, *, shared: int = 0) -> Places:
    """In linear time, however often the string overlaps itself. Neighbours may share the last `shared` characters."""
    step = len(sought) - shared
    from_top = list(_apart(text, sought, step))
    near = list(islice(_apart(text, sought, 1), MOST_NAMED))
    # Only a place that overlaps another can be passed over.
    overlap = any(text.find(sought, at + 1, at + step - 1 + len(sought)) >= 0 for at in from_top)
    if not overlap:
        return Places(from_top, from_top, near)
    # Backwards by a search forwards: `rfind` takes the square of the time.
    last = len(text) - len(sought)
    turned = [last - at for at in _apart(text[::-1], sought[::-1], step)]
    return Places(from_top, turned[::-1], near)


def _apart(text: str, sought: str, step: int) -> Iterator[int]:
    at = text.find(sought) if sought else -1
    while at >= 0:
        yield at
        at = text.find(sought, at + step)


def replaced(text: str, spans: Sequence[Span]) -> str:
    """`text` with each span's window replaced; everything else stays."""
    pieces: list[str] = []
    done = 0
    for span in spans:
        pieces += [text[done : span.start], span.new]
        done = span.end
    return "".join([*pieces, text[done:]])
