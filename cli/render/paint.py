"""paint: colours where a terminal shows them, and texts made harmless before a person decides on them."""

import os
import re
import shutil
from typing import TextIO

from interlock.state.text import harmless, visible

_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
"""Colours, cursor movements, titles: what programs send to a terminal."""

_BREAKS = re.compile(r"[ \t\r\n]+")
_OURS = re.compile(rf"(\x1b\[(?:(?:{'|'.join(_CODES.values())})(?:;\d+)*|0)m)")


class Paint:
    """Colours for one stream; none unless it is a terminal (`NO_COLOR`, `TERM=dumb` turn them off there)."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.terminal = stream.isatty()
        self.on = self.terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

    def __call__(self, text: str, *styles: str) -> str:
        if not self.on or not text:
            return text
        return f"\x1b[{';'.join(_CODES[s] for s in styles)}m{text}\x1b[0m"

    def print(self, line: str = "", *, reading: bool = False) -> None:
        """Write one line; whoever named what stands in it, of control characters only our own colours come through.

        `reading`: a text of several lines, of which only what is harmful is written out.
        """
        parts = _OURS.split(line) if self.on else [line]
        shown = [harmless(p) if reading else visible(p).replace("\n", "\\n") for p in parts[::2]]
        colours = [*parts[1::2], ""]
        self._stream.write("".join(t + c for t, c in zip(shown, colours, strict=True)) + "\n")

    @property
    def width(self) -> int:
        """Columns; 100 where there is no terminal."""
        return shutil.get_terminal_size((100, 24)).columns if self.terminal else 100


def plain(output: str) -> str:
    """A program's output line without colours; of what overwrites itself the last state."""
    return harmless(_SEQUENCE.sub("", output).rstrip("\r").rpartition("\r")[2])


def one_line(text: str, width: int = 0) -> str:
    """The text on one line, cut to `width` characters (0: not cut)."""
    return cut(visible(_BREAKS.sub(" ", text).strip()), width)


def cut(text: str, width: int) -> str:
    return text if not width or len(text) <= width else text[: max(width - 1, 1)] + "…"
