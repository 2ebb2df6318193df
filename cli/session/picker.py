"""picker: a list to pick from, in place of the input line."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Thread
from typing import Any

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout.containers import HSplit, Window
from prompt_toolkit.layout.controls import BufferControl, FormattedTextControl
from prompt_toolkit.layout.dimension import Dimension
from prompt_toolkit.layout.processors import BeforeInput
from rich.cells import cell_len, set_cell_size

from interlock.cli.render.output import to_one_line
from interlock.cli.session.completion import FuzzyNameMatcher

_MOST_LINES = 10
MARK = "❯ "


@dataclass(frozen=True)
class Row:
    name: str
    about: str = ""
    value: Any = None
    text: list[str] = field(default_factory=list[str], compare=False)
    """What else the filter looks in."""


class Picker:
    """A list in place of the input line; `chosen` is the row, or None."""

    def __init__(self, title: str, rows: Sequence[Row], width: Callable[[], int], at: int = 0) -> None:
        """`at`: the row marked first."""
        self.chosen: asyncio.Future[Row | None] = asyncio.get_running_loop().create_future()
        self._title, self._rows, self._width = title, rows, width
        self._names = FuzzyNameMatcher([f"{row.name} {row.about}" for row in rows])
        self._longest = max((cell_len(to_one_line(row.name)) for row in rows), default=0)
        self._longest_about = max((cell_len(to_one_line(row.about)) for row in rows), default=0)
        self._found = list(range(len(rows)))
        self._at = min(max(at, 0), max(len(rows) - 1, 0))
        self._typed = Buffer(multiline=False, on_text_changed=lambda _: self._apply_filter())
        keys = self._build_key_bindings()
        self.input = BufferControl(
            self._typed,
            [BeforeInput("  filter: " if len(rows) > 2 else "  ", "class:dim")],
            key_bindings=keys,
        )
        height = Dimension(preferred=min(_MOST_LINES, max(len(rows), 1)), max=_MOST_LINES)
        self.container = HSplit(
            [
                Window(FormattedTextControl(self.heading_text), height=1),
                Window(FormattedTextControl(self.visible_rows), height=height, dont_extend_height=True),
                Window(self.input, height=1),
            ]
        )

    def read_texts_in_thread(self, text_reader: Iterable[None], repaint: Callable[[], None]) -> None:
        """Take the steps of `text_reader`, which read the rows' texts, in a thread; what is shown follows."""

        def steps() -> None:
            for _ in text_reader:
                if self.chosen.done():
                    return
                with suppress(RuntimeError):  # the session has ended
                    self.chosen.get_loop().call_soon_threadsafe(show)

        def show() -> None:
            marked = self._found[self._at] if self._found else None
            self._apply_filter()
            self._at = self._found.index(marked) if marked in self._found else 0
            repaint()

        Thread(target=steps, daemon=True).start()

    def _apply_filter(self) -> None:
        typed = self._typed.text
        found = self._names.find_matching_indices(typed, len(self._rows))
        self._found = [
            *found,
            *(n for n, row in enumerate(self._rows) if n not in found and _matching_passage(row, typed)),
        ]
        self._at = 0

    def heading_text(self) -> StyleAndTextTuples:
        many = len(self._rows) > _MOST_LINES or self._typed.text
        count = f" ({len(self._found)} of {len(self._rows)})" if many else ""
        return [("bold", truncate_to_width(self._title, self._width() - len(count))), ("class:dim", count)]

    def visible_rows(self) -> StyleAndTextTuples:
        if not self._found:
            return [("class:dim", "  nothing fits")]
        first = max(0, min(self._at - _MOST_LINES // 2, len(self._found) - _MOST_LINES))
        lines: StyleAndTextTuples = []
        for place in range(first, min(first + _MOST_LINES, len(self._found))):
            lines += self._row_cells(self._rows[self._found[place]], place == self._at)
        return lines[:-1]

    def _row_cells(self, row: Row, marked: bool) -> StyleAndTextTuples:
        """Names share a column; what describes them gets at least two fifths of the width."""
        width = self._width() - len(MARK) - 1
        name = to_one_line(row.name)
        about = _matching_passage(row, self._typed.text) or to_one_line(row.about)
        column = min(self._longest, max(width * 3 // 5, width - 2 - self._longest_about) if about else width)
        name = truncate_to_width(name, column)
        hint = truncate_to_width(about, width - column - 2)
        return [
            ("class:mark bold" if marked else "", MARK if marked else "  "),
            ("bold" if marked else "", name if not hint else set_cell_size(name, column)),
            ("class:dim", f"  {hint}" if hint else ""),
            ("", "\n"),
        ]

    def _resolve_choice(self, row: Row | None) -> None:
        if not self.chosen.done():
            self.chosen.set_result(row)

    def _build_move_handler(self, offset: int) -> Callable[[KeyPressEvent], None]:
        def move(_: KeyPressEvent) -> None:
            self._at = max(0, min(self._at + offset, len(self._found) - 1))

        return move

    def _build_key_bindings(self) -> KeyBindings:
        keys = KeyBindings()
        steps = {"up": -1, "c-p": -1, "s-tab": -1, "down": 1, "c-n": 1, "tab": 1}
        steps |= {
            "pageup": 1 - _MOST_LINES,
            "pagedown": _MOST_LINES - 1,
            "c-home": -1_000_000,
            "c-end": 1_000_000,
        }
        for key, by in steps.items():
            keys.add(key, eager=True)(self._build_move_handler(by))

        @keys.add("enter", eager=True)
        def _take(_: KeyPressEvent) -> None:
            if self._found:
                self._resolve_choice(self._rows[self._found[self._at]])

        @keys.add("escape", eager=True)
        @keys.add("c-c", eager=True)
        @keys.add("c-d", eager=True)
        @keys.add("c-g", eager=True)
        def _leave(_: KeyPressEvent) -> None:
            self._resolve_choice(None)

        return keys


_AROUND = 30
"""Characters shown before what was found in a row's text."""


def _matching_passage(row: Row, typed: str) -> str:
    """Where the row's text, and neither its name nor what describes it, has what is typed; empty: nowhere."""
    wanted = typed.strip().lower()
    if not wanted or wanted in f"{row.name} {row.about}".lower():
        return ""
    for text in row.text:
        if (at := text.lower().find(wanted)) >= 0:
            return f"…{to_one_line(text[max(at - _AROUND, 0) : at + 200])}"
    return ""


def truncate_to_width(text: str, width: int) -> str:
    return text if cell_len(text) <= width else set_cell_size(text, max(width - 1, 0)).rstrip() + "…"
