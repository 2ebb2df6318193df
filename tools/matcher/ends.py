"""ends: what stands directly before and behind a window, and what an edit says of it twice or leaves out."""

from interlock.tools.matcher.windows import Window, indent


def before(text: str, place: int) -> str:
    """What stands before a place on its line."""
    return text[text.rfind("\n", 0, place) + 1 : place]


def as_written(text: str, window: Window, old: str, new: str) -> str:
    """`new` for a window that is `old` to the character, without the indentation that stands before it already."""
    blanks = before(text, window.start)
    behind = new.removeprefix(blanks)
    if blanks and not indent(old) and indent(new) == blanks and behind.strip() and behind != old:
        new = behind
    return apart(text, window, old, new, new)


def apart(text: str, window: Window, old: str, new: str, made: str) -> str:
    """`made` with the line break that the window has at an end and `new` lacks, where lines would run into each
    other; not if that is all the edit does, and not behind a blank, with which `new` goes on."""
    ours = text[window.start : window.end]
    if not made.strip() or new.strip() == old.strip():
        return made
    first = indent(made)
    if ours.startswith("\n") and first and first == indent(ours[1:]) and before(text, window.start):
        made = "\n" + made
    if ours.endswith("\n") and not made[-1].isspace() and text[window.end : window.end + 1] not in ("", "\n"):
        made += "\n"
    return made


def without_blanks(lines: list[str], most: int) -> list[str]:
    """Without up to `most` blank lines at the beginning; one line stays."""
    while most and len(lines) > 1 and not lines[0].strip():
        lines, most = lines[1:], most - 1
    return lines


def base_indent(text: str) -> str:
    """The indentation of the first line that isn't blank."""
    return indent(next((line for line in text.split("\n") if line.strip()), ""))


def indented_like(text: str, place: str, base: str, new: str) -> str:
    """`new`, written for a text that `base` indents, with the indentation of `place`, which stands in `text` once."""
    at = text.find(place)
    blanks = before(text, at) if at >= 0 and not place.startswith("\n") else ""
    there = blanks + base_indent(place)
    if text.count(place) != 1 or blanks.strip() or base == there or (not base and base_indent(new) == there):
        return new
    moved = [
        there + line[len(base) :] if line.strip() and line.startswith(base) else line
        for line in new.split("\n")
    ]
    return "\n".join(moved).removeprefix(blanks)
