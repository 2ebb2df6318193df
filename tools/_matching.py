"""_matching: where a piece of text stands in a file, and what comes nearest when it doesn't."""

import difflib

from interlock.tools._text import TextFile, line_at, lines_of

_MOST_LINES = 10_000
_MOST_COLUMNS = 300
"""Bounds of the search for similar lines: it compares each line of the file."""
_SIMILAR = 0.6
_MOST_SHOWN = 12


def with_final_newline(file: TextFile, raw: str) -> str:
    """`raw` ending as the file did: with a line ending, or without."""
    if not raw or not file.raw:
        return raw
    if file.raw.endswith("\n"):
        return raw if raw.endswith("\n") else raw + file.newline
    return raw.removesuffix("\n").removesuffix("\r") if raw.endswith("\n") else raw


def nearest_text(text: str, old: str, new: str) -> str:
    """What a model needs to find its place again: an edit that was made already, or the most similar lines."""
    if new.strip() and new in text:
        return (
            f"new_string stands at line {line_at(text, text.find(new))} already: the edit may have been made."
        )
    wanted = lines_of(old)
    lines = lines_of(text)
    found = _same_but_blanks(lines, wanted) or _similar(lines, wanted)
    if found is None:
        return "Nothing in it is similar; read the file again."
    start, why = found
    shown = lines[start : start + min(len(wanted), _MOST_SHOWN)]
    return f"{why} at line {start + 1}:\n" + "\n".join(map(_cut, shown))


def excerpt(text: str, old: str, most: int) -> str:
    """About `most` characters of a long text, whole lines, around those that are most like `old`."""
    lines = lines_of(text)
    found = _same_but_blanks(lines, lines_of(old)) or _similar(lines, lines_of(old))
    first = last = found[0] if found else 0
    room = most - len(lines[first])
    while room > 0 and (first > 0 or last < len(lines) - 1):
        if first > 0:
            first -= 1
            room -= len(lines[first]) + 1
        if last < len(lines) - 1:
            last += 1
            room -= len(lines[last]) + 1
    shown = "\n".join(lines[first : last + 1])
    return f"[lines {first + 1} to {last + 1} of {len(lines)}]\n{shown[: 2 * most]}"


def _cut(line: str) -> str:
    return line if len(line) <= _MOST_COLUMNS else line[:_MOST_COLUMNS] + " …"


def _same_but_blanks(lines: list[str], wanted: list[str]) -> tuple[int, str] | None:
    bare = [line.strip() for line in wanted]
    if not any(bare):
        return None
    stripped = [line.strip() for line in lines]
    for start in range(len(lines) - len(bare) + 1):
        if stripped[start : start + len(bare)] == bare:
            return start, "The same text with other whitespace stands"
    return None


def _similar(lines: list[str], wanted: list[str]) -> tuple[int, str] | None:
    """By the longest wanted line, which tells most."""
    anchor = max(range(len(wanted)), key=lambda index: len(wanted[index].strip()))
    needle = wanted[anchor].strip()[:_MOST_COLUMNS]
    if not needle:
        return None
    candidates = dict.fromkeys(line.strip()[:_MOST_COLUMNS] for line in lines[:_MOST_LINES])
    near = difflib.get_close_matches(needle, candidates, n=1, cutoff=_SIMILAR)
    if not near:
        return None
    place = next(i for i, line in enumerate(lines) if line.strip()[:_MOST_COLUMNS] == near[0])
    return max(0, place - anchor), "The most similar text stands"
