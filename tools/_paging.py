"""_paging: a file's text in pieces that fit a model's window, saying what was cut and how to go on."""

import mimetypes
from dataclasses import dataclass

from interlock.tools._text import lines_of

MOST_LINES = 2000
"""Lines shown when no end is asked for (gemini-cli: 2,000)."""
MOST_COLUMNS = 2000
"""Characters shown of a line (gemini-cli: 2,000)."""
MOST_CHARS = 200_000
"""Characters shown in all: about 50,000 tokens, so that no single answer fills a window."""
_CUT = "... [truncated]"


@dataclass(frozen=True)
class Page:
    """Lines `first` to `last` (1-based) of `total`; `cut` of them lost their end."""

    text: str
    first: int
    last: int
    total: int
    cut: int

    @property
    def whole(self) -> bool:
        return self.first == 1 and self.last == self.total


def page(text: str, start: int = 1, end: int | None = None, most_chars: int = MOST_CHARS) -> Page:
    """Lines from `start` on; without `end` at most 2,000. `start` must not lie past the text."""
    lines = lines_of(text)
    wanted = lines[start - 1 : start - 1 + MOST_LINES if end is None else end]
    shown: list[str] = []
    used = cut = 0
    for line in wanted:
        short = line if len(line) <= MOST_COLUMNS else line[:MOST_COLUMNS] + _CUT
        if shown and used + len(short) + 1 > most_chars:
            break
        cut += short is not line
        used += len(short) + 1
        shown.append(short)
    return Page("\n".join(shown), start, start + len(shown) - 1, len(lines), cut)


def heading(part: Page) -> str:
    """What was left out and how to get it, in square brackets on a line of its own; empty when nothing was."""
    notes: list[str] = []
    if not part.whole:
        notes.append(f"Lines {part.first}-{part.last} of {part.total}.")
        if part.last < part.total:
            notes.append(f"To go on, read from start_line={part.last + 1}.")
    if part.cut:
        lines = "1 line was" if part.cut == 1 else f"{part.cut} lines were"
        notes.append(f"{lines} cut at {MOST_COLUMNS} characters.")
    return f"[{' '.join(notes)}]\n" if notes else ""


def notice(shown: str, size: int) -> str:
    """What is said of a file that isn't text."""
    mime = mimetypes.guess_type(shown)[0] or ""
    kind = {"image": "an image", "audio": "a sound file", "video": "a video"}.get(
        mime.partition("/")[0], "binary"
    )
    known = f" ({mime})" if mime else ""
    return f"[{shown!r} is {kind}{known} of {size} bytes; its content can't be shown as text.]"
