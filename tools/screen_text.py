"""screen_text: turns what a program writes for a terminal into the text that its screen would show.

Lines are as long as they are and the screen has any height, because nobody looks at it: there is no terminal. So only
what programs do to redraw lines counts (`\\r`, backspace, moving and erasing), and colours, titles and the like are
left out. pyte, an emulator, hasn't been released since 2023 and has a screen of fixed size; the tests compare with it.
"""

import re
from collections.abc import Iterator

from interlock.state.text import replace_surrogates

_SPECIAL = re.compile(r"[\x01-\x08\x0b-\x1f\x7f-\x9f]")
_TOKEN = re.compile(
    r"[^\x01-\x08\n-\x1f\x7f-\x9f]+"
    r"|\x1b\[([0-?]*)[ -/]*([@-~])"
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)"
    r"|\x1b([ -/]*[0-Z\\^-~])"
    r"|[\x01-\x1f\x7f-\x9f]"
)
_COLOURS = re.compile(r"\x1b\[[0-9;:]*m")
_UNFINISHED = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b]*\x1b?|[ -/]*)?\Z")
_LONGEST_SEQUENCE = 4096
_HEIGHT = 200
"""Lines above the newest that a program may still change; taller than anybody's terminal."""
_WIDTH = 1000
"""Columns to which the cursor may be moved past a line's end: else some bytes would make a line of megabytes."""
_LONGEST_NUMBER = 6
"""Digits; Python refuses to read thousands of them."""
_LONGEST_LINE = 100_000
_ODD = re.compile("[\x00\udc80-\udcff]")
"""Bytes that aren't UTF-8, and NUL."""
_BINARY_SHARE = 0.1
_ALTERNATE = ("?47", "?1047", "?1049")
"""Modes in which a program draws on a screen that is gone when it ends."""


def show_on_screen(text: str) -> str:
    """Return the text that a screen would show of a program's whole output."""
    screen = ScreenText()
    return screen.feed(text) + screen.finish()


class ScreenText:
    """Takes text piece by piece, and gives back the lines that no later one can change."""

    def __init__(self) -> None:
        self._lines: list[str] = [""]
        self._row: int = 0
        self._column: int = 0
        self._saved: tuple[int, int] = (0, 0)
        self._origin: int | None = None
        """The row at which a program cleared the screen; what stood above stays."""
        self._behind: tuple[list[str], int, int] | None = None
        """The screen behind the alternate one."""
        self._rest = ""
        self._left_out = False
        """Lines that aren't text were left out, which wasn't said yet."""

    def feed(self, text: str) -> str:
        """Add text; return the lines that are finished."""
        # Most of what programs write besides text: without it nothing may be left to do.
        text, self._rest = _COLOURS.sub("", (self._rest + text)).replace("\r\n", "\n"), ""
        at_end = self._row == len(self._lines) - 1 and self._column == len(self._lines[-1])
        if at_end and not _SPECIAL.search(text):
            first, *more = text.split("\n")
            self._lines[-1] += first
            self._lines += more
            self._row, self._column = len(self._lines) - 1, len(self._lines[-1])
        else:
            found = _UNFINISHED.search(text, max(0, len(text) - _LONGEST_SEQUENCE))
            if found:
                text, self._rest = text[: found.start()], found[0]
            for token in _TOKEN.finditer(text):
                self._apply_token(token)
        return "".join(self._take_finished_lines())

    def finish(self) -> str:
        """Return all that is left."""
        if self._behind:
            self._restore_screen_behind()
        lines, self._lines = self._lines, [""]
        shown = "".join(self._format_line(f"{line}\n") for line in lines[:-1]) + self._format_line(lines[-1])
        return shown + self._note_of_left_out_lines()

    def _take_finished_lines(self) -> Iterator[str]:
        if self._behind:
            return
        if len(self._lines[-1]) > _LONGEST_LINE and self._row == len(self._lines) - 1:
            taken, self._lines = self._lines, [""]
            self._column = 0
            yield from (self._format_line(f"{line}\n") for line in taken[:-1])
            yield self._format_line(taken[-1])
        elif (done := self._row - _HEIGHT) > _HEIGHT:
            taken, self._lines = self._lines[:done], self._lines[done:]
            yield from (self._format_line(f"{line}\n") for line in taken)
        else:
            return
        self._row -= len(taken) if self._row >= len(taken) else self._row
        self._saved = max(0, self._saved[0] - len(taken)), self._saved[1]
        if self._origin is not None:
            self._origin = max(0, self._origin - len(taken))

    def _format_line(self, line: str) -> str:
        odd = len(_ODD.findall(line)) if not line.isascii() or "\0" in line else 0
        if odd and (self._left_out or odd > max(4, len(line) * _BINARY_SHARE)):
            self._left_out = True
            return ""
        return self._note_of_left_out_lines() + replace_surrogates(line)

    def _note_of_left_out_lines(self) -> str:
        noted, self._left_out = self._left_out, False
        return "[Output that isn't text in UTF-8 isn't shown here.]\n" if noted else ""

    def _apply_token(self, token: re.Match[str]) -> None:
        text, numbers, final, escape = token[0], token[1], token[2], token[3]
        if final:
            self._apply_control_sequence(numbers, final)
        elif escape:
            self._apply_escape(escape)
        elif text == "\r":
            self._column = 0
        elif text in ("\n", "\v", "\f"):
            self._move_to(self._row + 1, 0)
        elif text == "\b":
            self._column = max(0, self._column - 1)
        elif text[0] not in "\x1b" and (text == "\t" or not _SPECIAL.match(text)):
            self._write(text)

    def _write(self, text: str) -> None:
        line = self._lines[self._row]
        self._column = min(self._column, max(len(line), _WIDTH))
        end = self._column + len(text)
        self._lines[self._row] = line[: self._column].ljust(self._column) + text + line[end:]
        self._column = end

    def _move_to(self, row: int, column: int) -> None:
        self._row, self._column = max(0, row), max(0, column)
        if self._row >= len(self._lines):
            self._row = min(self._row, len(self._lines) + _HEIGHT)
            self._lines += [""] * (self._row + 1 - len(self._lines))

    def _apply_escape(self, escape: str) -> None:
        if escape == "7":
            self._saved = self._row, self._column
        elif escape == "8":
            self._move_to(*self._saved)
        elif escape == "M":
            self._move_to(self._row - 1, self._column)
        elif escape == "c":
            self._erase_drawn_lines()

    def _apply_control_sequence(self, numbers: str, final: str) -> None:
        given = [int(part[:_LONGEST_NUMBER]) if part.isdecimal() else 0 for part in numbers.split(";")]
        count = max(1, given[0])
        line, column = self._lines[self._row], self._column
        match final:
            case "A":
                self._move_to(self._row - count, column)
            case "B":
                self._move_to(self._row + count, column)
            case "C":
                self._column += count
            case "D":
                self._column = max(0, column - count)
            case "E" | "F":
                self._move_to(self._row + (count if final == "E" else -count), 0)
            case "G":
                self._column = count - 1
            case "H" | "f":
                self._move_to((self._origin or 0) + count - 1, max(1, *given[1:2], 1) - 1)
            case "J" if given[0] == 0:
                self._lines[self._row] = line[:column]
                del self._lines[self._row + 1 :]
            case "J" if given[0] > 1:
                self._erase_drawn_lines()
            case "K":
                kept = "" if given[0] == 2 else line[:column] if given[0] == 0 else ""
                tail = line[column + 1 :] if given[0] == 1 else ""
                self._lines[self._row] = " " * (column + 1) + tail if tail else kept
            case "P":
                self._lines[self._row] = line[:column] + line[column + count :]
            case "X":
                blank = " " * len(line[column : column + count])
                self._lines[self._row] = line[:column] + blank + line[column + count :]
            case "s":
                self._saved = self._row, column
            case "u":
                self._move_to(*self._saved)
            case "h" if numbers in _ALTERNATE and self._behind is None:
                self._behind = self._lines, self._row, self._column
                self._lines, self._row, self._column = [""], 0, 0
            case "l" if numbers in _ALTERNATE and self._behind:
                self._restore_screen_behind()
            case _:
                pass

    def _erase_drawn_lines(self) -> None:
        """Clear what was drawn since the screen was cleared before. What the first one would clear stays."""
        if self._behind:
            self._lines, self._row = [""], 0
            return
        if self._origin is None:
            self._origin = len(self._lines) - (self._lines[-1] == "")
        else:
            del self._lines[self._origin :]
        self._lines = self._lines or [""]
        self._move_to(self._origin, self._column)

    def _restore_screen_behind(self) -> None:
        if self._behind:
            self._lines, self._row, self._column = self._behind
            self._behind = None
