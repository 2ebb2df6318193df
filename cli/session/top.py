"""top: a live screen of the runs that wait for a person, run or are queued, on which one is picked or stopped."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout import ConditionalContainer, HSplit, Layout, Window
from prompt_toolkit.layout.controls import BufferControl, FormattedTextControl
from prompt_toolkit.layout.processors import BeforeInput
from prompt_toolkit.output.color_depth import ColorDepth

from interlock.cli.render.output import (
    abbreviate_home,
    format_compact_number,
    format_dollars,
    format_duration,
    to_one_line,
)
from interlock.cli.session.input_line import STYLE
from interlock.cli.session.picker import MARK, truncate_to_width
from interlock.cli.session.terminal_output import terminal_size
from interlock.engine.client.active_runs import ActiveRun
from interlock.state.clock import unix_time
from interlock.state.errors import InterlockError

_REFRESH_S = 1.0
"""Seconds between two looks at the store."""
_LINES_A_RUN = 3
"""What it is; what it does; what it used, and where."""
_STYLES = {"waiting": "class:asks", "running": "class:running", "queued": "class:dim"}
_MARKS = {"waiting": "?", "running": "●", "queued": "○"}
_KEYS = "↑↓ choose · Enter open · x stop · n new run · q quit"


class TopScreen:
    """The whole terminal, until a run is chosen or the person leaves."""

    def __init__(
        self,
        read_runs: Callable[[], Sequence[ActiveRun]],
        stop_run: Callable[[str], str],
        start_run: Callable[[str], str],
        marked_run: str,
        color: bool,
    ) -> None:
        """`stop_run` stops the run of an id, `start_run` starts one with a prompt; both say what came of it.

        `marked_run`: the run marked first.
        """
        self._read_runs, self._stop_run, self._start_run = read_runs, stop_run, start_run
        self._marked = marked_run
        self._runs: Sequence[ActiveRun] = ()
        self._to_confirm = ""
        """The run that is stopped after a `y`."""
        self._note = ""
        self._list = FormattedTextControl(
            self._visible_runs,
            focusable=True,
            show_cursor=False,
            key_bindings=self._build_list_key_bindings(),
        )
        self._prompt = Buffer(multiline=False)
        self._prompt_line = BufferControl(
            self._prompt,
            [BeforeInput("Prompt of a new run in this folder: ", "class:asks")],
            key_bindings=self._build_prompt_key_bindings(),
        )
        is_typing = Condition(lambda: self.app.layout.has_focus(self._prompt_line))
        self.app: Application[str] = Application(
            layout=Layout(
                HSplit(
                    [
                        Window(FormattedTextControl(self._heading_cells), height=1),
                        Window(height=1),
                        Window(self._list),
                        ConditionalContainer(Window(self._prompt_line, height=1), is_typing),
                        Window(FormattedTextControl(self._footer_cells), height=1),
                    ]
                ),
                focused_element=self._list,
            ),
            style=STYLE,
            full_screen=True,
            color_depth=None if color else ColorDepth.DEPTH_1_BIT,
        )
        self.app.ttimeoutlen = 0.05

    async def choose_run(self) -> str:
        """Show the runs until one is chosen; returns its id, or an empty text when the person leaves."""
        refresh = asyncio.ensure_future(self._refresh_forever())
        try:
            return await self.app.run_async()
        finally:
            refresh.cancel()

    async def _refresh_forever(self) -> None:
        while True:
            await self._refresh()
            await asyncio.sleep(_REFRESH_S)

    async def _refresh(self) -> None:
        try:
            self._runs = await asyncio.to_thread(self._read_runs)
        except InterlockError as error:
            self._note = to_one_line(str(error))
        if self._runs and all(one.row.run != self._marked for one in self._runs):
            self._marked = self._runs[0].row.run
        self.app.invalidate()

    @property
    def _marked_index(self) -> int:
        """The place of the marked run; the first one's, if it is gone."""
        return next((n for n, one in enumerate(self._runs) if one.row.run == self._marked), 0)

    def _heading_cells(self) -> StyleAndTextTuples:
        counts = [
            f"{number} {status}"
            for status in _MARKS
            if (number := sum(one.row.status == status for one in self._runs))
        ]
        return [("bold", "Runs"), ("class:dim", f"  {' · '.join(counts)}")]

    def _visible_runs(self) -> StyleAndTextTuples:
        if not self._runs:
            return [
                (
                    "class:dim",
                    "No run waits, runs or is queued. Start one: interlock -p 'what to do' --detach",
                )
            ]
        size = terminal_size()
        shown = max((size.rows - 4) // _LINES_A_RUN, 1)
        first = max(0, min(self._marked_index - shown // 2, len(self._runs) - shown))
        now = unix_time()
        return [
            part
            for n in range(first, min(first + shown, len(self._runs)))
            for part in _run_cells(self._runs[n], n == self._marked_index, size.columns - 1, now)
        ]

    def _footer_cells(self) -> StyleAndTextTuples:
        if self._to_confirm:
            return [("class:asks", f"Stop run {self._to_confirm}? y stops it, any other key leaves it.")]
        typing = self.app.layout.has_focus(self._prompt_line)
        text = "Enter starts it, and a worker drives it · Esc goes back" if typing else self._note or _KEYS
        return [("class:dim", truncate_to_width(text, terminal_size().columns - 1))]

    def _build_list_key_bindings(self) -> KeyBindings:
        keys = KeyBindings()

        def move(by: int) -> Callable[[KeyPressEvent], None]:
            def moved(_: KeyPressEvent) -> None:
                self._to_confirm = self._note = ""
                if self._runs:
                    self._marked = self._runs[
                        max(0, min(self._marked_index + by, len(self._runs) - 1))
                    ].row.run

            return moved

        for key, by in {"up": -1, "k": -1, "down": 1, "j": 1, "home": -1_000_000, "end": 1_000_000}.items():
            keys.add(key)(move(by))

        @keys.add("<any>")
        def _leave_unstopped(_: KeyPressEvent) -> None:
            self._to_confirm = ""

        @keys.add("enter")
        def _attach(_: KeyPressEvent) -> None:
            if self._runs and not self._to_confirm:
                self.app.exit(result=self._runs[self._marked_index].row.run)
            self._to_confirm = ""

        @keys.add("x")
        def _ask_to_stop(_: KeyPressEvent) -> None:
            self._to_confirm = self._runs[self._marked_index].row.run if self._runs else ""

        @keys.add("y")
        def _stop(event: KeyPressEvent) -> None:
            if run := self._to_confirm:
                self._to_confirm = ""
                event.app.create_background_task(self._do_and_note(lambda: self._stop_run(run)))

        @keys.add("n")
        def _ask_for_prompt(event: KeyPressEvent) -> None:
            self._to_confirm = ""
            event.app.layout.focus(self._prompt_line)

        for key in ("q", "escape", "c-c", "c-d"):

            @keys.add(key, eager=True)
            def _leave(_: KeyPressEvent) -> None:
                with suppress(Exception):  # the second of two keys that came at once
                    self.app.exit(result="")

        return keys

    def _build_prompt_key_bindings(self) -> KeyBindings:
        keys = KeyBindings()

        @keys.add("enter")
        def _start(event: KeyPressEvent) -> None:
            if prompt := self._prompt.text.strip():
                event.app.create_background_task(self._do_and_note(lambda: self._start_run(prompt)))
            _go_back(event)

        @keys.add("escape", eager=True)
        @keys.add("c-c", eager=True)
        def _go_back(event: KeyPressEvent) -> None:
            self._prompt.reset()
            event.app.layout.focus(self._list)

        return keys

    async def _do_and_note(self, work: Callable[[], str]) -> None:
        """Do it in a thread, and show what it says."""
        try:
            self._note = to_one_line(await asyncio.to_thread(work))
        except InterlockError as error:
            self._note = to_one_line(str(error))
        await self._refresh()


def _run_cells(one: ActiveRun, marked: bool, width: int, now: float) -> StyleAndTextTuples:
    """Three lines: what the run is; what it does; what it used, and where."""
    row, inner = one.row, width - len(MARK)
    cost = "" if row.usd is None else f" · {format_dollars(row.usd)}"
    figures = f"{format_compact_number(row.tokens)} tokens{cost}"
    place = abbreviate_home(row.workspace) + (f" ⎇ {one.branch}" if one.branch else "")
    status = f"{_MARKS[row.status]} {row.status} {format_duration(max(now - one.since, 0))}"
    title = truncate_to_width(to_one_line(row.title or row.workflow), max(inner - len(status) - 2, 8))
    return [
        ("class:mark bold" if marked else "", MARK if marked else " " * len(MARK)),
        (_STYLES[row.status], status),
        ("bold", f"  {title}\n"),
        ("", " " * len(MARK)),
        ("", f"{truncate_to_width(to_one_line(one.activity), inner)}\n"),
        ("", " " * len(MARK)),
        ("class:dim", f"{truncate_to_width(f'{row.run} · {figures} · {place}', inner)}\n"),
    ]
