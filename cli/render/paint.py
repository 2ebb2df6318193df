"""paint: colours where a terminal shows them, and texts made harmless before a person decides on them."""

import os
import re
import shutil
from typing import TextIO

_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
"""Colours, cursor movements, titles: what programs send to a terminal."""
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e007f]"
)
"""Control characters, bidirectional overrides and invisible ones: they can make a command read as another one."""


class Paint:
    """Colours for one stream; none unless it is a terminal (`NO_COLOR`, `TERM=dumb` turn them off there)."""

    def __init__(self, stream: TextIO) -> None:
        self.terminal = stream.isatty()
        self.on = self.terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

    def __call__(self, text: str, *styles: str) -> str:
        if not self.on or not text:
            return text
        return f"\x1b[{';'.join(_CODES[s] for s in styles)}m{text}\x1b[0m"

    @property
    def width(self) -> int:
        """Columns; 100 where there is no terminal."""
        return shutil.get_terminal_size((100, 24)).columns if self.terminal else 100


def visible(text: str) -> str:
    """For decisions: what a terminal would obey, or not show, is written out as `\\x1b` and the like."""
    return _HIDDEN.sub(_written_out, text.replace("\r\n", "\n"))


def harmless(text: str) -> str:
    """For reading: control characters are written out, the rest stays as it is."""
    return _CONTROL.sub(_written_out, text.replace("\r", ""))


def plain(output: str) -> str:
    """A program's output line without colours; of what overwrites itself the last state."""
    return harmless(_SEQUENCE.sub("", output).rstrip("\r").rpartition("\r")[2])


def one_line(text: str, width: int = 0) -> str:
    """The text on one line, cut to `width` characters (0: not cut)."""
    return cut(visible(" ".join(text.split())), width)


def cut(text: str, width: int) -> str:
    return text if not width or len(text) <= width else text[: max(width - 1, 1)] + "…"


def _written_out(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode()
