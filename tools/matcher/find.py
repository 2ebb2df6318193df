"""find: locate `old` in a text, from exact to approximate; the first strategy that finds anything decides.

exact → ignoring typography → ignoring whitespace → ignoring whitespace between words → nearest, within a tenth. It
never guesses: too many windows, or overlapping ones, are a `Miscount`.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from interlock.tools.matcher.merge import (
    adapt_exact_replacement,
    fold_typography,
    merge_window,
    normalize_unicode_like,
    text_before_on_line,
)
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
    WorkBudget,
    choose_windows_from_both_ends,
    find_first_occurrences,
    find_line_windows,
    find_occurrences,
    find_token_windows,
    line_indent,
    replace_spans,
    split_search_lines,
)


def _find_fuzzy_windows(text: str, old: str, work: WorkBudget) -> Windows:
    from interlock.tools.matcher.fuzzy import find_nearest_windows

    return choose_windows_from_both_ends(find_nearest_windows(text, old, work))


_STRATEGIES: tuple[tuple[Strategy, Callable[[str, str, WorkBudget], Windows]], ...] = (
    ("whitespace", find_line_windows),
    ("tokens", find_token_windows),
    ("fuzzy", _find_fuzzy_windows),
)

STRATEGIES: tuple[Strategy, ...] = ("exact", "typography", *(name for name, _ in _STRATEGIES))
"""In the order in which they are tried."""


def find_exact_match(
    text: str, old: str, new: str, expected: int | None, *, whole_lines: bool = False
) -> Match | Miscount | None:
    """Return every exact occurrence of `old`, as the first strategy finds it."""
    if many := _miscount_if_too_many("exact", text, old, expected, whole_lines):
        return many
    windows = _find_exact_windows(text, old, whole_lines)
    return _to_match_or_miscount(
        "exact", text, windows, lambda w: adapt_exact_replacement(text, w, old, new), expected
    )


def find_match(
    text: str,
    old: str,
    new: str,
    expected: int | None,
    *,
    whole_lines: bool = False,
    work: WorkBudget,
    allow_fuzzy: bool = True,
) -> Match | Miscount | None:
    """Return where `old` is, by the first strategy that finds it; the last one only with `allow_fuzzy`. `expected`
    None: every window, at least one. `whole_lines`: no partial lines. An exact match that begins amid an indentation
    counts only if no strategy finds whole lines."""
    literal = find_exact_match(text, old, new, expected, whole_lines=whole_lines)
    amid = _starts_inside_indentation(text, old, literal)
    if (literal is not None and not amid) or not old.strip():
        return literal
    found = None
    original, old, new = old, normalize_unicode_like(text, old), normalize_unicode_like(text, new)
    folded, plain_old = fold_typography(text), fold_typography(old)
    merge, aligned = (
        _make_cached_merger(text, old, new),
        partial(_align_window_to_lines, folded, plain_old, whole_lines),
    )
    if not amid and (plain_old != original or folded is not text):
        pairs = tuple(
            range(len(split_search_lines(old)))
        )  # a character-by-character match also matches line by line
        windows = _find_exact_windows(folded, plain_old, whole_lines)
        literal = _miscount_if_too_many(
            "typography", folded, plain_old, expected, whole_lines
        ) or _to_match_or_miscount(
            "typography", text, windows, lambda w: merge(replace(w, pairs=pairs)), expected
        )
        found = None if _starts_inside_indentation(text, old, literal) else literal
    allow_fuzzy = allow_fuzzy and literal is None and expected in (None, 1)
    for strategy, look in _STRATEGIES:
        if found is None and (allow_fuzzy or strategy != "fuzzy"):
            try:
                windows = look(folded, plain_old, work)
            except TooMuchWork:
                return Miscount(strategy, 0, ())
            windows = _keep_whole_line_windows(text, windows) if whole_lines else windows
            found = _to_match_or_miscount(strategy, text, windows, merge, expected, aligned)
    return found or literal


def _starts_inside_indentation(text: str, old: str, found: Match | Miscount | None) -> bool:
    """Return whether `old` has only a part of the indentation of a line that it was found in."""
    first = old.partition("\n")[0]
    if not isinstance(found, Match) or not line_indent(first) or not first.strip():
        return False
    starts = (text_before_on_line(text, span.start) for span in found.spans)
    return any(blanks and not blanks.strip() for blanks in starts)


def _miscount_if_too_many(
    strategy: Strategy, text: str, old: str, expected: int | None, whole_lines: bool
) -> Miscount | None:
    """Return a miscount of so many places that they are only counted (a list of millions would take seconds), else
    None."""
    if expected is None or not old:
        return None
    text, old, shared = _surround_with_newlines(text, old) if whole_lines else (text, old, 0)
    count = text.count(old)
    if count <= max(expected, MOST_NAMED):
        return None
    return Miscount(strategy, count, tuple(find_first_occurrences(text, old, shared_chars=shared)))


def _surround_with_newlines(text: str, old: str) -> tuple[str, str, int]:
    """Return both texts with a line break before and after, and how many characters neighbours share."""
    return f"\n{text}\n", f"\n{old}\n", 1


def _find_exact_windows(text: str, old: str, whole_lines: bool) -> Windows:
    whole, sought, shared = _surround_with_newlines(text, old) if whole_lines else (text, old, 0)
    at = find_occurrences(whole, sought, shared_chars=shared)
    top, end = (
        [Window(place, place + len(old)) for place in chosen] for chosen in (at.from_top, at.from_end)
    )
    return Windows(top, end, at.near)


def _keep_whole_line_windows(text: str, windows: Windows) -> Windows:
    def whole(window: Window) -> bool:
        return not text_before_on_line(text, window.start).strip() and text[window.end : window.end + 1] in (
            "",
            "\n",
        )

    return Windows([*filter(whole, windows.from_top)], [*filter(whole, windows.from_end)], windows.near)


def _make_cached_merger(text: str, old: str, new: str) -> Callable[[Window], str]:
    """Return a function that merges windows, those with equal text once."""
    known: dict[tuple[str, str, tuple[int | None, ...] | None], str] = {}

    def merge(window: Window) -> str:
        key = (text_before_on_line(text, window.start), text[window.start : window.end], window.pairs)
        if key not in known:
            known[key] = merge_window(text, window, old, new)
        return known[key]

    return merge


def _to_match_or_miscount(
    strategy: Strategy,
    text: str,
    windows: Windows,
    merge: Callable[[Window], str],
    expected: int | None,
    align: Callable[[Window], Window] = lambda window: window,
) -> Match | Miscount | None:
    """Return a match of the windows if they are as many as expected and don't overlap, else a miscount; None: none."""
    chosen = windows.from_top
    if not chosen:
        return None
    if expected is not None and len(chosen) != expected:
        return Miscount(strategy, len(chosen), tuple(window.start for window in chosen[:MOST_NAMED]))

    def spans(of: Windows, from_end: bool) -> tuple[Span, ...]:
        exact = (align(window) for window in (of.from_end if from_end else of.from_top))
        return tuple(Span(w.start, w.end, merge(w)) for w in exact)

    made = spans(windows, from_end=False)
    if windows.from_end != chosen and replace_spans(text, made) != replace_spans(
        text, spans(windows, from_end=True)
    ):
        return Miscount(strategy, len(chosen), tuple(windows.near), overlapping=True)
    return Match(strategy, made)


def _align_window_to_lines(text: str, old: str, whole_lines: bool, window: Window) -> Window:
    """Return a window of whole lines paired with `old` if their words are on the same lines. The line break that ends
    `old` is in the window, too, unless it stands for a blank line (`whole_lines`)."""
    if window.pairs is not None:
        return window
    start = text.rfind("\n", 0, window.start) + 1
    wanted, there = split_search_lines(old), text[start : window.end].split("\n")
    whole = text[window.end : window.end + 1] in ("", "\n") and not text[start : window.start].strip()
    if not whole or [TOKEN.findall(w) for w in wanted] != [TOKEN.findall(t) for t in there]:
        return window
    breaks = old.endswith("\n") and not whole_lines and window.end < len(text)
    end = window.end + 1 if breaks else window.end
    return Window(start, end, tuple(range(len(wanted))))
