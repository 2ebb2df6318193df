"""find: where `old` stands in a text, from exact to nearly; the first strategy that finds anything decides.

exact → the same but for typography → but for whitespace → but for whitespace between words → nearest, within a tenth.
It never chooses: too many windows, or windows that overlap, are a `Miscount`.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from interlock.tools.matcher.fuzzy import fuzzy_windows
from interlock.tools.matcher.lines import TOKEN, line_windows, old_lines, token_windows
from interlock.tools.matcher.merge import merged
from interlock.tools.matcher.typography import fold, in_form_of
from interlock.tools.matcher.windows import Match, Miscount, Span, Strategy, Window, packed, replaced

__all__ = ["Match", "Miscount", "Span", "Strategy", "find", "find_exact", "replaced"]

_STRATEGIES: tuple[tuple[Strategy, Callable[[str, str], list[Window]]], ...] = (
    ("whitespace", line_windows),
    ("tokens", token_windows),
    ("fuzzy", fuzzy_windows),
)
_MOST_NAMED = 100
"""Places that a miscount names."""


def find_exact(text: str, old: str, new: str, expected: int | None) -> Match | Miscount | None:
    """The first strategy: every place where `old` stands as it is."""
    count = text.count(old) if old else 0
    if expected is not None and count not in (0, expected):
        return Miscount(
            "exact", count, tuple(w.start for w in packed(list(islice(_occurrences(text, old), _MOST_NAMED))))
        )
    return _settled("exact", text, list(_occurrences(text, old)), lambda _: new, expected)


def find(text: str, old: str, new: str, expected: int | None) -> Match | Miscount | None:
    """All strategies. `expected` null: every window, at least one."""
    found = find_exact(text, old, new, expected)
    if found is not None or not old.strip():
        return found
    given, old, new = old, in_form_of(text, old), in_form_of(text, new)
    folded, plain_old = fold(text), fold(old)

    def merge(window: Window) -> str:
        return merged(text, window, old, new)

    if plain_old != given or folded is not text:
        windows = [_by_line(w, old) for w in _occurrences(folded, plain_old)]
        found = _settled("typography", text, windows, merge, expected)
    for strategy, look in _STRATEGIES:
        if found is None and (strategy != "fuzzy" or expected in (None, 1)):
            windows = [_aligned(folded, w, plain_old) for w in look(folded, plain_old)]
            found = _settled(strategy, text, windows, merge, expected)
    return found


def _occurrences(text: str, old: str) -> Iterator[Window]:
    """Overlapping ones too."""
    place = text.find(old) if old else -1
    while place >= 0:
        yield Window(place, place + len(old))
        place = text.find(old, place + 1)


def _settled(
    strategy: Strategy,
    text: str,
    windows: Sequence[Window],
    merge: Callable[[Window], str],
    expected: int | None,
) -> Match | Miscount | None:
    if not windows:
        return None
    chosen = packed(windows)
    places = tuple(window.start for window in chosen)
    if expected is not None and len(chosen) != expected:
        return Miscount(strategy, len(chosen), places[:_MOST_NAMED])
    spans = tuple(Span(w.start, w.end, merge(w)) for w in chosen)
    if len(chosen) < len(windows) and (other := packed(windows, from_end=True)) != chosen:
        from_end = [Span(w.start, w.end, merge(w)) for w in other]
        if replaced(text, spans) != replaced(text, from_end):
            near = tuple(window.start for window in windows[:_MOST_NAMED])
            return Miscount(strategy, len(chosen), near, overlapping=True)
    return Match(strategy, spans)


def _by_line(window: Window, old: str) -> Window:
    """A window that agrees with `old` character by character agrees line by line, too."""
    return Window(window.start, window.end, tuple(range(len(old_lines(old)))))


def _aligned(text: str, window: Window, old: str) -> Window:
    """A window of whole lines that has `old`'s words on `old`'s lines is paired with them."""
    if window.pairs is not None:
        return window
    start = text.rfind("\n", 0, window.start) + 1
    wanted, there = old_lines(old), text[start : window.end].split("\n")
    whole = text[window.end : window.end + 1] in ("", "\n") and not text[start : window.start].strip()
    if not whole or [TOKEN.findall(w) for w in wanted] != [TOKEN.findall(t) for t in there]:
        return window
    end = window.end + 1 if old.endswith("\n") and window.end < len(text) else window.end
    return Window(start, end, tuple(range(len(wanted))))
