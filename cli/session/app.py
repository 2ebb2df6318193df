"""app: a session's terminal: finished output is printed above, once; live output and the prompt are below."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from prompt_toolkit.application import Application, run_in_terminal
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition, is_searching
from prompt_toolkit.formatted_text import ANSI, StyleAndTextTuples
from prompt_toolkit.input.typeahead import get_typeahead
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent, merge_key_bindings
from prompt_toolkit.key_binding.vi_state import InputMode
from prompt_toolkit.layout import ConditionalContainer, DynamicContainer, HSplit, Layout, Window
from prompt_toolkit.layout.controls import FormattedTextControl
from prompt_toolkit.layout.dimension import Dimension
from prompt_toolkit.layout.menus import CompletionsMenu
from prompt_toolkit.output.color_depth import ColorDepth
from prompt_toolkit.widgets import SearchToolbar

from interlock.cli.render.output import close_stdout, notify_terminal, redact_secrets
from interlock.cli.session import decision_panel, external_programs
from interlock.cli.session.command_actions import apply_settings
from interlock.cli.session.commands import command_offers, handle_line, is_slash_command
from interlock.cli.session.completion import Files, SessionCompleter, open_files
from interlock.cli.session.decision_panel import MenuKeys, Panel
from interlock.cli.session.input_line import (
    STYLE,
    InputHistory,
    Pastes,
    SessionInput,
    build_input_buffer,
    build_input_control,
    build_input_keys,
)
from interlock.cli.session.picker import Picker, Row
from interlock.cli.session.screen import Screen
from interlock.cli.session.session import Session
from interlock.cli.session.status import Readings, status_line
from interlock.cli.session.terminal_output import HeldOutput, handle_once, split_portion, terminal_size
from interlock.cli.session.theme import DEFAULT, THEMES
from interlock.engine.client import Decision, Options
from interlock.engine.client.choices import switch_to_next_approval_mode
from interlock.engine.client.requests import Request
from interlock.state.errors import as_bug_error
from interlock.state.events import NotificationEvent

T = TypeVar("T")
_WATCH_S = 2.0
"""Seconds between checks of the branch, the cost, and what waits elsewhere."""
_SPIN_S = 1 / 8
"""Seconds between paintings while the agent works without output."""
FRAME_S = 1 / 60
"""Least seconds between two paintings."""
_AGAIN_S = 2.0
"""Seconds within which a second Ctrl-C leaves."""


class App:
    """The terminal: a prompt_toolkit application that leaves the scrollback alone."""

    def __init__(self, options: Options, workflow: str) -> None:
        self.color = not os.environ.get("NO_COLOR")
        self.screen = Screen(terminal_size().columns, THEMES[DEFAULT], self.color)
        self.session = Session(options, workflow, self.screen, self)
        self.session.take = lambda text: handle_line(self.session, text)
        self.screen.changed = self.paint
        self.panel: Panel | None = None
        self._waiting: Collection[str] = ()
        """Ids of requests still undecided."""
        self.picker: Picker | None = None
        self.pastes = Pastes()
        self.session.images = self.pastes.images
        self.buffer = self._input_buffer()
        self._search = SearchToolbar()
        self._figures = Readings(options.home)
        self._hint, self._interrupted_at = "", -_AGAIN_S
        self._menu = MenuKeys(self.buffer, self._panel, self.session.failed, self.paint)
        self._above = ""
        """Output still to be printed above."""
        self._live = ANSI("")
        self._painted_at, self._due = 0.0, False
        self._loop: asyncio.AbstractEventLoop | None = None
        self.output = HeldOutput(sys.stdout)
        self.app: Application[None] = Application(
            layout=Layout(self._layout(), focused_element=self._input),
            key_bindings=merge_key_bindings(
                [build_input_keys(self.session, self.buffer, self.pastes, self._next_mode), self._keys()]
            ),
            style=STYLE,
            input=SessionInput(sys.stdin),
            output=self.output,
            color_depth=None if self.color else ColorDepth.DEPTH_1_BIT,
        )
        self.app.ttimeoutlen, self.app.timeoutlen = 0.05, 0.3  # Esc alone; Esc before another key
        self.app.key_processor.before_key_press += self._pressed

    async def run(self, prompt: str, run: str | None) -> None:
        self._loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGHUP):
            self._loop.add_signal_handler(number, self.exit)

        self._spin = self._loop.call_soon(self.paint)
        before = get_typeahead(self.app.input)  # typed ahead; goes after the initial prompt

        def begin() -> None:
            self.session.begin()
            self.app.create_background_task(apply_settings(self.session))
            if run:
                self.session.switch(run)
            if prompt:
                self.session.submit(prompt)
            self.app.key_processor.feed_multiple(before)
            self.app.key_processor.process_keys()

        self.app.after_render += handle_once(self.app, begin)
        self._loop.set_exception_handler(self._bug)
        watches = [asyncio.ensure_future(work) for work in (self._watch(), self.session.watch())]
        try:
            await self.app.run_async(set_exception_handler=False)
        except EOFError:
            pass  # the terminal is gone
        finally:
            for watch in watches:
                watch.cancel()
            await self.session.close()
            self._figures.close()
            self.output.write_raw((self._above + self.screen.finished()).replace("\n", "\r\n"))
            self.output.flush()

    def _bug(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Show a bug as one line; the session stays usable."""
        self.session.failed(as_bug_error(context.get("exception") or context["message"]))

    # What the session calls

    def exit(self) -> None:
        if self.app.is_running and not self.app.is_done:
            self.app.exit()

    def paint(self) -> None:
        """Schedule a painting. Thread-safe, and cheap if one is scheduled already."""
        if not self._due and self._loop is not None:
            self._due = True
            self._loop.call_soon_threadsafe(self._schedule)

    def ring(self, event: NotificationEvent) -> None:
        if self._loop is not None:  # between two paintings
            self._loop.call_soon_threadsafe(notify_terminal, event, sys.stdout)

    async def decide(self, _run: str, requests: Sequence[Mapping[str, Any]], /) -> list[Decision]:
        """Ask for decisions on the requests; those without one are left for later."""
        self._waiting, draft = {request["id"] for request in requests}, ""

        async def ask(panel: Panel) -> list[Decision]:
            nonlocal draft
            await self._menu.quiet()
            draft = self.buffer.text or draft
            self.buffer.reset()
            self.app.vi_state.input_mode = InputMode.INSERT
            self.panel = panel
            self._menu.forget()
            self.still_asked(self._waiting)
            self.paint()
            try:
                return await panel.decided
            finally:
                self.panel = None

        try:
            return await decision_panel.ask_decisions(requests, self.screen, self, self.color, ask)
        finally:
            self.buffer.document = Document(self.buffer.text or draft)

    async def view(self, requests: Sequence[Request], /) -> None:
        lines = [*decision_panel.full_request_lines(requests, self.screen.width)]
        text = self.screen.render_to_ansi(lines)
        if not await self.handed_over(lambda: external_programs.show_in_pager(text)):
            self.screen.lines(lines)

    async def compare(self, requests: Sequence[Request], /) -> None:
        await self.handed_over(lambda: external_programs.open_difftool(requests, self.session.workspace))

    def still_asked(self, waiting: Collection[str]) -> None:
        """Withdraw the question if its request was decided elsewhere."""
        self._waiting = waiting
        if self.panel is not None and not {r["id"] for r in self.panel.requests} <= {*waiting}:
            self.screen.note("Decided in another terminal.")
            self.panel.withdraw()

    async def handed_over(self, work: Callable[[], T]) -> T:
        """Do something that needs the whole terminal, such as an editor, in its own thread."""
        return await run_in_terminal(work, in_executor=True)

    async def pick(
        self, title: str, rows: Sequence[Row], at: int = 0, reading: Iterable[None] = ()
    ) -> Row | None:
        self.picker = Picker(title, rows, lambda: terminal_size().columns, at)
        self.app.layout.focus(self.picker.input)
        self.paint()
        self.picker.read(reading, self.paint)
        try:
            return await self.picker.chosen
        finally:
            self.picker = None
            self.app.layout.focus(self._input)
            self.paint()

    async def confirm(self, question: str) -> bool:
        picked = await self.pick(question, [Row("no", value=False), Row("yes", value=True)])
        return bool(picked and picked.value)

    def suggest(self, text: str) -> None:
        """Put text into an empty input line, for the person to change and send."""
        if not self.buffer.text:
            self.buffer.document = Document(text)

    def take_back(self, texts: Sequence[str]) -> None:
        """Put queued prompts back into the input line, before what is typed."""
        self.buffer.document = Document("\n\n".join([*texts, *filter(None, [self.buffer.text])]))

    def _input_buffer(self) -> Buffer:
        session = self.session
        history = InputHistory(session.home, session.workspace, self.pastes, redact_secrets)
        completer = SessionCompleter(
            lambda name: command_offers(session, name), Files(lambda: open_files(session.workspace))
        )
        return build_input_buffer(self._sent, completer, history, self.pastes)

    def _sent(self, text: str) -> None:
        """Handle a sent line: an answer that a question waits for, else as at any time."""
        if self.panel is not None and self.panel.asks_for and not is_slash_command(text):
            self.panel.say(text)
        else:
            handle_line(self.session, text)

    def _next_mode(self) -> None:
        switch_to_next_approval_mode(self.session)
        self.paint()

    async def _watch(self) -> None:
        """Keep the status line's outside figures up to date."""
        while True:
            if await asyncio.to_thread(self._figures.read, self.session):
                self.paint()
            await asyncio.sleep(_WATCH_S)

    # Painting

    def _schedule(self) -> None:
        assert self._loop is not None
        self._loop.call_later(max(self._painted_at + FRAME_S - time.monotonic(), 0), self._paint)

    def _paint(self) -> None:
        self._due, self._painted_at = False, time.monotonic()
        if not self.app.is_running or self.app._running_in_terminal:  # pyright: ignore[reportPrivateUsage]
            return
        self.screen.resize(terminal_size().columns)
        self._above += self.screen.finished()
        self._live = ANSI(self.screen.live(max(terminal_size().rows // 2, 3)))
        now, self._above = split_portion(self._above)
        rendered = self.app.renderer.last_rendered_screen
        wanted = self.app.layout.container.preferred_height(
            terminal_size().columns, terminal_size().rows
        ).preferred
        with self.output.held():
            if now or (rendered and wanted < rendered.height):
                self.app.renderer.erase(leave_alternate_screen=False)
                self.output.write_raw(now.replace("\n", "\r\n"))
            self.app._redraw()  # pyright: ignore[reportPrivateUsage] - `invalidate` paints later
        if self._above:
            self.paint()
        elif self._loop and self.session.busy and self.panel is None:
            self._spin.cancel()
            self._spin = self._loop.call_later(_SPIN_S, self.paint)

    # Layout

    def _layout(self) -> HSplit:
        self._input = Window(
            build_input_control(self.buffer, self._search.control),
            height=lambda: Dimension(min=1, max=max(terminal_size().rows // 2, 1)),
            wrap_lines=True,
            dont_extend_height=True,
            get_line_prefix=lambda line, wrapped: (
                [("", "  ")] if line or wrapped else [("fg:ansicyan bold", "› ")]
            ),
        )
        lines: Any = {"dont_extend_height": True, "wrap_lines": False}
        return HSplit(
            [
                Window(FormattedTextControl(lambda: self._live), **lines),
                ConditionalContainer(
                    Window(FormattedTextControl(self._queued), style="class:queue", **lines),
                    Condition(lambda: bool(self.session.queue)),
                ),
                ConditionalContainer(
                    Window(
                        FormattedTextControl(lambda: self._panel().lines(terminal_size().columns)),
                        dont_extend_height=True,
                        wrap_lines=True,
                    ),
                    Condition(lambda: self.panel is not None),
                ),
                ConditionalContainer(self._input, Condition(lambda: self.picker is None)),
                DynamicContainer(lambda: self.picker.container if self.picker else Window(height=0)),
                self._search,
                CompletionsMenu(max_height=8),
                Window(FormattedTextControl(self._status), height=1, **lines),
            ]
        )

    def _queued(self) -> StyleAndTextTuples:
        return [
            ("fg:ansibrightblack", f"  queued: {text.splitlines()[0][:200]}\n") for text in self.session.queue
        ]

    def _status(self) -> StyleAndTextTuples:
        """The status line, or a hint about what to press for as long as it applies."""
        if self._hint:
            return [("class:dim", self._hint)]
        return status_line(self._figures.of(self.session), terminal_size().columns)

    # Keys

    def _pressed(self, _: object) -> None:
        at = self._menu.pressed()
        if self._hint and at - self._interrupted_at > _AGAIN_S:
            self._hint = ""

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()
        asking = Condition(lambda: self.panel is not None and self.picker is None)
        empty = Condition(lambda: not self.buffer.text)
        menu = asking & empty & Condition(lambda: not self._panel().asks_for)
        queued = Condition(lambda: bool(self.session.queue)) & empty
        unsaid = empty & Condition(lambda: self.picker is None)

        keys.add("enter", filter=~asking & unsaid & ~is_searching)(
            _key_handler(lambda: self.session.submit(""))
        )
        keys.add("enter", filter=asking & empty & ~menu)(_key_handler(lambda: self._panel().say("")))
        keys.add("c-c", filter=~is_searching)(self._interrupt)
        keys.add("c-d", filter=empty)(_key_handler(self.session.leave))
        keys.add("c-z")(_key_handler(lambda: self.app.suspend_to_background()))
        keys.add("up", filter=queued)(self._take_back)
        keys.add("escape", filter=asking, eager=True)(_key_handler(self._menu.back))
        for key, by in {"up": -1, "down": 1}.items():
            keys.add(key, filter=menu)(_key_handler(partial(self._menu.move, by)))
        keys.add("enter", filter=menu)(self._menu.decide)
        keys.add("<any>", filter=menu)(self._menu.decide)
        return keys

    def _panel(self) -> Panel:
        assert self.panel is not None
        return self.panel

    def _take_back(self, _: KeyPressEvent) -> None:
        """Take the newest queued prompt back, to change or drop it."""
        self.buffer.text = self.session.queue.pop()
        self.buffer.cursor_position = len(self.buffer.text)

    def _interrupt(self, _: KeyPressEvent) -> None:
        """Once: stop what is running, or drop what is typed. Twice: leave."""
        now = time.monotonic()
        again, self._interrupted_at = now - self._interrupted_at < _AGAIN_S, now
        if again:
            self.session.leave()
        elif self.panel is not None:
            self._panel().back()
        elif self.session.busy:
            self.session.cancel()
        else:
            self.buffer.reset()
        self._hint = "Ctrl-C again leaves"


def _key_handler(work: Callable[[], None]) -> Callable[[KeyPressEvent], None]:
    return lambda _: work()


def run_session(options: Options, workflow: str, prompt: str = "", run: str | None = None) -> int:
    """Run a session until the person leaves; returns the exit code."""
    sys.setswitchinterval(0.001)  # lets a key interrupt the engine's thread sooner
    terminal = App(options, workflow)
    asyncio.run(terminal.run(prompt, run))
    left = terminal.session.run
    try:
        sys.stdout.write(f"Go on with: interlock -r {left}\n" if left else "")
        sys.stdout.flush()
    except OSError:  # the terminal is gone
        close_stdout()
    return 0
