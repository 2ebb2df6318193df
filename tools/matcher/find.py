"""find: locate `old` in a text, from exact to approximate; the first strategy that finds anything decides.

exact → ignoring typography → ignoring whitespace → ignoring whitespace between words → nearest, within a tenth. It
never guesses: too many windows, or overlapping ones, are a `Miscount`.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from interlock.tools.matcher.ends import as_written, before
from interlock.tools.matcher.merge import fold, in_form_of, merged
from interlock.tools.matcher.windows import (
    MOST_NAMED,
    TOKEN,
    Match,
    Miscount,
    Span,
    Strategy,
    TooMuchWork,
    Window,
    Windows,
    Work,
    first_places,
    indent,
    line_windows,
    old_lines,
    places,
    replaced,
    token_windows,
    windows_of,
)


def _fuzzy_windows(text: str, old: str, work: Work) -> Windows:
    from interlock.tools.matcher.fuzzy import nearest_windows

    return windows_of(nearest_windows(text, old, work))


_STRATEGIES: tuple[tuple[Strategy, Callable[[str, str, Work], Windows]], ...] = (
    ("whitespace", line_windows),
    ("tokens", token_windows),
    ("fuzzy", _fuzzy_windows),
)

STRATEGIES: tuple[Strategy, ...] = ("exact", "typography", *(name for name, _ in _STRATEGIES))
"""In the order in which they are tried."""


def find_exact(
    text: str, old: str, new: str, expected: int | None, *, whole_lines: bool = False
) -> Match | Miscount | None:
    """The first strategy: every exact occurrence of `old`."""
    if many := _far_too_many("exact", text, old, expected, whole_lines):
        return many
    windows = _exact_windows(text, old, whole_lines)
    return _settled("exact", text, windows, lambda w: as_written(text, w, old, new), expected)


def find(
    text: str,
    old: str,
    new: str,
    expected: int | None,
    *,
    whole_lines: bool = False,
    nearly: bool = True,
    work: Work | None = None,
) -> Match | Miscount | None:
    """All strategies, the last only with `nearly`. `expected` null: every window, at least one. `whole_lines`: no
    partial lines. An exact match that begins amid an indentation counts only if no strategy finds whole lines."""
    literal = find_exact(text, old, new, expected, whole_lines=whole_lines)
    amid = _amid_indentation(text, old, literal)
    if (literal is not None and not amid) or not old.strip():
        return literal
    found = None
    work = work or Work()
    original, old, new = old, in_form_of(text, old), in_form_of(text, new)
    folded, plain_old = fold(text), fold(old)
    merge, aligned = _merge(text, old, new), partial(_aligned, folded, plain_old, whole_lines)
    if not amid and (plain_old != original or folded is not text):
        pairs = tuple(range(len(old_lines(old))))  # a character-by-character match also matches line by line
        windows = _exact_windows(folded, plain_old, whole_lines)
        literal = _far_too_many("typography", folded, plain_old, expected, whole_lines) or _settled(
            "typography", text, windows, lambda w: merge(replace(w, pairs=pairs)), expected
        )
        found = None if _amid_indentation(text, old, literal) else literal
    nearly = nearly and literal is None and expected in (None, 1)
    for strategy, look in _STRATEGIES:
        if found is None and (nearly or strategy != "fuzzy"):
            try:
                windows = look(folded, plain_old, work)
            except TooMuchWork:
                return Miscount(strategy, 0, ())
            windows = _of_whole_lines(text, windows) if whole_lines else windows
            found = _settled(strategy, text, windows, merge, expected, aligned)
    return found or literal


def _amid_indentation(text: str, old: str, found: Match | Miscount | None) -> bool:
    """Whether `old` has only a part of the indentation of a line that it was found in."""
    first = old.partition("\n")[0]
    if not isinstance(found, Match) or not indent(first) or not first.strip():
        return False
    starts = (before(text, span.start) for span in found.spans)
    return any(blanks and not blanks.strip() for blanks in starts)


def _far_too_many(
    strategy: Strategy, text: str, old: str, expected: int | None, whole_lines: bool
) -> Miscount | None:
    """A miscount of so many places that they are only counted: a list of millions would take seconds."""
    if expected is None or not old:
        return None
    text, old, shared = _as_lines(text, old) if whole_lines else (text, old, 0)
    count = text.count(old)
    if count <= max(expected, MOST_NAMED):
        return None
    return Miscount(strategy, count, tuple(first_places(text, old, shared=shared)))


def _as_lines(text: str, old: str) -> tuple[str, str, int]:
    """With a line's own breaks before and after it, shared with its neighbours."""
    return f"\n{text}\n", f"\n{old}\n", 1


def _exact_windows(text: str, old: str, whole_lines: bool) -> Windows:
    whole, sought, shared = _as_lines(text, old) if whole_lines else (text, old, 0)
    at = places(whole, sought, shared=shared)
    top, end = (
        [Window(place, place + len(old)) for place in chosen] for chosen in (at.from_top, at.from_end)
    )
    return Windows(top, end, at.near)


def _of_whole_lines(text: str, windows: Windows) -> Windows:
    def whole(window: Window) -> bool:
        return not before(text, window.start).strip() and text[window.end : window.end + 1] in ("", "\n")

    return Windows([*filter(whole, windows.from_top)], [*filter(whole, windows.from_end)], windows.near)


def _merge(text: str, old: str, new: str) -> Callable[[Window], str]:
    """Merges windows; windows with equal text are merged once."""
    known: dict[tuple[str, str, tuple[int | None, ...] | None], str] = {}

    def merge(window: Window) -> str:
        key = (before(text, window.start), text[window.start : window.end], window.pairs)
        if key not in known:
            known[key] = merged(text, window, old, new)
        return known[key]

    return merge


def _settled(
    strategy: Strategy,
    text: str,
    windows: Windows,
    merge: Callable[[Window], str],
    expected: int | None,
    aligned: Callable[[Window], Window] = lambda window: window,
) -> Match | Miscount | None:
    chosen = windows.from_top
    if not chosen:
        return None
    if expected is not None and len(chosen) != expected:
        return Miscount(strategy, len(chosen), tuple(window.start for window in chosen[:MOST_NAMED]))

    def spans(of: Windows, from_end: bool) -> tuple[Span, ...]:
        exact = (aligned(window) for window in (of.from_end if from_end else of.from_top))
        return tuple(Span(w.start, w.end, merge(w)) for w in exact)

    made = spans(windows, from_end=False)
    if windows.from_end != chosen and replaced(text, made) != replaced(text, spans(windows, from_end=True)):
        return Miscount(strategy, len(chosen), tuple(windows.near), overlapping=True)
    return Match(strategy, made)


def _aligned(text: str, old: str, whole_lines: bool, window: Window) -> Window:
    """Pair a window of whole lines with `old` if their words are on the same lines. The line break that ends `old` is
    in the window, too, unless it stands for a blank line (`whole_lines`)."""
    if window.pairs is not None:
        return window
    start = text.rfind("\n", 0, window.start) + 1
    wanted, there = old_lines(old), text[start : window.end].split("\n")
    whole = text[window.end : window.end + 1] in ("", "\n") and not text[start : window.start].strip()
    if not whole or [TOKEN.findall(w) for w in wanted] != [TOKEN.findall(t) for t in there]:
        return window
    breaks = old.endswith("\n") and not whole_lines and window.end < len(text)
    end = window.end + 1 if breaks else window.end
    return Window(start, end, tuple(range(len(wanted))))
