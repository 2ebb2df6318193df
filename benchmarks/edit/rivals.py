"""rivals: the obvious ways in Python without a matcher: exact only, and difflib's closest window."""

from difflib import SequenceMatcher

_CUTOFF = 0.6
"""The default of difflib.get_close_matches."""


def exact_only(before: bytes, old: str, new: str, expected: int | None) -> bytes | None:
    """`str.replace`, if the count is right."""
    text = _decoded(before)
    count = text.count(old) if text is not None else 0
    if text is None or count == 0 or (expected is not None and count != expected):
        return None
    return text.replace(old, new).encode()


def closest(before: bytes, old: str, new: str, expected: int | None) -> bytes | None:
    """The most similar window with the same number of lines, if its ratio is at least 0.6."""
    if (done := exact_only(before, old, new, expected)) is not None:
        return done
    text = _decoded(before)
    if text is None or expected != 1:
        return None
    lines, wanted = text.split("\n"), old.split("\n")
    matcher = SequenceMatcher(None, autojunk=False)
    matcher.set_seq2(old)
    best, where = _CUTOFF, -1
    for at in range(len(lines) - len(wanted) + 1):
        matcher.set_seq1("\n".join(lines[at : at + len(wanted)]))
        if (
            matcher.real_quick_ratio() > best
            and matcher.quick_ratio() > best
            and (ratio := matcher.ratio()) > best
        ):
            best, where = ratio, at
    if where < 0:
        return None
    return "\n".join([*lines[:where], new, *lines[where + len(wanted) :]]).encode()


def _decoded(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None
