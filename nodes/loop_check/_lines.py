"""_lines: what kind of line begins here. Markup repeats itself without being a loop."""

import re
from enum import Enum

_MARKUP = re.compile(r"[*+•–-][ \t]|\d{1,9}[.)][ \t]|#{1,6}[ \t]|>|\||\+[-=]{2}")
"""List items, headings, quotes, table rows and borders."""
_RULE = r"-=_*~+#.·\u2500-\u257f"
_DIVIDER = re.compile(rf"[{_RULE}]{{3,}}")
_BEGINNING = re.compile(rf"[•–]|\d{{1,9}}[.)]?|[{_RULE} ]*")
_LONGEST = 200
"""Characters after which a line of rules alone is no divider."""


class Line(Enum):
    UNDECIDED = 0
    TEXT = 1
    MARKUP = 2
    DIVIDER = 3


def line_kind(line: str, whole: bool) -> Line:
    """`whole`: the line has ended; else more of it may come, and what it is may not be decided yet."""
    bare = line.strip() if whole else line.lstrip(" \t")
    # What is decided on the beginning of a line must be decided so on all of it, too.
    if _MARKUP.match(bare):
        return Line.MARKUP
    if whole:
        if _DIVIDER.fullmatch(bare.replace(" ", "")) and len(line) <= _LONGEST:
            return Line.DIVIDER
        return Line.MARKUP if _MARKUP.match(bare + " ") else Line.TEXT
    if len(line) <= _LONGEST and _BEGINNING.fullmatch(bare):
        return Line.UNDECIDED
    return Line.TEXT
