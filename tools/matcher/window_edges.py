"""window_edges: what stands directly before and behind a window, and what an edit says of it twice or leaves out."""

from interlock.tools.matcher.windows import Window, line_indent


def text_before_on_line(text: str, place: int) -> str:
    """Return what stands before a place on its line."""
    return text[text.rfind("\n", 0, place) + 1 : place]


def fit_exact_replacement(text: str, window: Window, old: str, new: str) -> str:
    """Return `new` for a window that is exactly `old`, without the indentation that stands before it already."""
    blanks = text_before_on_line(text, window.start)
    behind = new.removeprefix(blanks)
    if blanks and not line_indent(old) and line_indent(new) == blanks and behind.strip() and behind != old:
        new = behind
    return keep_lines_separate(text, window, old, new, new)


def keep_lines_separate(text: str, window: Window, old: str, new: str, made: str) -> str:
    """Return `made` with the line break that the window has at an end and `new` lacks, where lines would run into each
    other; not if that is all the edit does, and not behind a blank, with which `new` goes on."""
    ours = text[window.start : window.end]
    if not made.strip() or new.strip() == old.strip():
        return made
    first = line_indent(made)
    if (
        ours.startswith("\n")
        and first
        and first == line_indent(ours[1:])
        and text_before_on_line(text, window.start)
    ):
        made = "\n" + made
    if ours.endswith("\n") and not made[-1].isspace() and text[window.end : window.end + 1] not in ("", "\n"):
        made += "\n"
    return made


def drop_leading_blank_lines(lines: list[str], most: int) -> list[str]:
    """Return lines without up to `most` blank ones at the beginning; one line stays."""
    while most and len(lines) > 1 and not lines[0].strip():
        lines, most = lines[1:], most - 1
    return lines


def first_indent(text: str) -> str:
    """Return the indentation of the first line that isn't blank."""
    return line_indent(next((line for line in text.split("\n") if line.strip()), ""))


def reindent_to_place(text: str, place: str, base: str, new: str) -> str:
    """`new`, written for a text that `base` indents, with the indentation of `place`, which stands in `text` once."""
    at = text.find(place)
    blanks = text_before_on_line(text, at) if at >= 0 and not place.startswith("\n") else ""
    there = blanks + first_indent(place)
    if text.count(place) != 1 or blanks.strip() or base == there or (not base and first_indent(new) == there):
        return new
    moved = [
        there + line[len(base) :] if line.strip() and line.startswith(base) else line
        for line in new.split("\n")
    ]
    return "\n".join(moved).removeprefix(blanks)
