"""windows: pieces of a text that may stand for the one that an edit names."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Strategy = Literal["exact", "typography", "whitespace", "tokens", "fuzzy"]


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


def packed(windows: Sequence[Window], *, from_end: bool = False) -> list[Window]:
    """As many windows as fit without overlap, chosen from the top or from the end; in order."""
    chosen: list[Window] = []
    for window in reversed(windows) if from_end else windows:
        if not chosen or (window.end <= chosen[-1].start if from_end else window.start >= chosen[-1].end):
            chosen.append(window)
    return chosen[::-1] if from_end else chosen


def replaced(text: str, spans: Sequence[Span]) -> str:
    """`text` with each span's window replaced; everything else stays."""
    pieces: list[str] = []
    done = 0
    for span in spans:
        pieces += [text[done : span.start], span.new]
        done = span.end
    return "".join([*pieces, text[done:]])
