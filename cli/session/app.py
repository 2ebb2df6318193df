"""app: a session's terminal: finished output is printed above, once; live output and the prompt are below."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
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

from interlock.cli.render.output import notify_terminal, redact_secrets, redirect_stdout_to_null
from interlock.cli.session import decision_panel, external_programs
from interlock.cli.session.command_actions import greet_and_apply_settings
from interlock.cli.session.commands import command_offers_by_name, handle_line, is_slash_command
from interlock.cli.session.completion import SessionCompleter, WorkspaceFiles, open_folder_workspace
from interlock.cli.session.decision_panel import MenuKeyHandler, Panel
from interlock.cli.session.input_line import (
    STYLE,
    InputHistory,
    Pastes,
    SessionInput,
    build_input_buffer,
    build_input_control,
    build_input_key_bindings,
)
from interlock.cli.session.picker import Picker, Row
from interlock.cli.session.screen import Screen
from interlock.cli.session.session import Session
from interlock.cli.session.status import StatusReader, status_line
from interlock.cli.session.terminal_output import (
    BatchedOutput,
    make_once_after_render_handler,
    split_first_print_chunk,
    terminal_size,
)
from interlock.cli.session.theme import DEFAULT, THEMES
from interlock.engine.client import Decision, Options
from interlock.engine.client.choices import switch_to_next_approval_mode
from interlock.engine.client.requests import Request
from interlock.state.errors import InterlockError, as_bug_error
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
        self.screen.changed = self.schedule_repaint_if_supported
        self.panel: Panel | None = None
        self._undecided: Collection[str] = ()
        """Ids of requests still undecided."""
        self.picker: Picker | None = None
        self.pastes = Pastes()
        self.session.images = self.pastes.images_in
        self.buffer = self._build_input_buffer()
        self._search = SearchToolbar()
        self._figures = StatusReader(options.home)
        self._hint, self._interrupted_at = "", -_AGAIN_S
        self._menu = MenuKeyHandler(
            self.buffer, self._require_panel, self.session.report_error, self.schedule_repaint_if_supported
        )
        self._unprinted = ""
        """Output still to be printed above."""
        self._live = ANSI("")
        self._painted_at, self._painting_scheduled = 0.0, False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_hung_up = False
        """The terminal was closed."""
        self.output = BatchedOutput(sys.stdout)
        self.app: Application[None] = Application(
            layout=Layout(self._build_layout(), focused_element=self._input),
            key_bindings=merge_key_bindings(
                [
                    build_input_key_bindings(
                        self.session, self.buffer, self.pastes, self._cycle_approval_mode
                    ),
                    self._build_key_bindings(),
                ]
            ),
            style=STYLE,
            input=SessionInput(sys.stdin),
            output=self.output,
            color_depth=None if self.color else ColorDepth.DEPTH_1_BIT,
        )
        self.app.ttimeoutlen, self.app.timeoutlen = 0.05, 0.3  # Esc alone; Esc before another key
        self.app.key_processor.before_key_press += self._record_key_press

    async def run_until_exit(self, prompt: str, run: str | None) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop.add_signal_handler(signal.SIGTERM, self.end_session)
        self._loop.add_signal_handler(signal.SIGHUP, self._end_hung_up_session)

        self._spin = self._loop.call_soon(self.schedule_repaint_if_supported)
        before = get_typeahead(self.app.input)  # typed ahead; goes after the initial prompt

        def begin() -> None:
            self.session.start_engine_thread()
            self.app.create_background_task(greet_and_apply_settings(self.session))
            if run:
                self.session.switch_run(run)
            if prompt:
                self.session.submit_prompt(prompt)
            self.app.key_processor.feed_multiple(before)
            self.app.key_processor.process_keys()

        self.app.after_render += make_once_after_render_handler(self.app, begin)
        self._loop.set_exception_handler(self._report_unhandled_exception)
        watches = [
            asyncio.ensure_future(work)
            for work in (self._refresh_status_line_forever(), self.session.watch_external_changes())
        ]
        try:
            await self.app.run_async(set_exception_handler=False)
        except EOFError:
            self._is_hung_up = True
        finally:
            for watch in watches:
                watch.cancel()
            if self._is_hung_up and self.session.detaches_when_closed and self.session.run:
                with suppress(InterlockError):  # nobody is there to read it: the run stops
                    await self.session.detach_run()
            await self.session.close()
            self._figures.close()
            self.output.write_raw(
                (self._unprinted + self.screen.take_finished_output()).replace("\n", "\r\n")
            )
            self.output.flush()

    def _end_hung_up_session(self) -> None:
        self._is_hung_up = True
        self.end_session()

    def _report_unhandled_exception(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Show a bug as one line; the session stays usable."""
        self.session.report_error(as_bug_error(context.get("exception") or context["message"]))

    # What the session calls

    def end_session(self) -> None:
        if self.app.is_running and not self.app.is_done:
            self.app.exit()

    def schedule_repaint_if_supported(self) -> None:
        """Schedule a painting. Thread-safe, and cheap if one is scheduled already."""
        if not self._painting_scheduled and self._loop is not None:
            self._painting_scheduled = True
            self._loop.call_soon_threadsafe(self._schedule_next_frame)

    def notify_person(self, event: NotificationEvent) -> None:
        if self._loop is not None:  # between two paintings
            self._loop.call_soon_threadsafe(notify_terminal, event, sys.stdout)

    async def ask_for_decisions(self, _run: str, requests: Sequence[Mapping[str, Any]], /) -> list[Decision]:
        """Ask for decisions on the requests; those without one are left for later."""
        self._undecided, draft = {request["id"] for request in requests}, ""

        async def ask(panel: Panel) -> list[Decision]:
            nonlocal draft
            await self._menu.wait_until_typing_stops()
            draft = self.buffer.text or draft
            self.buffer.reset()
            self.app.vi_state.input_mode = InputMode.INSERT
            self.panel = panel
            self._menu.forget_held_key()
            self.withdraw_decided_requests(self._undecided)
            self.schedule_repaint_if_supported()
            try:
                return await panel.decided
            finally:
                self.panel = None

        try:
            return await decision_panel.ask_for_decisions(requests, self.screen, self, ask)
        finally:
            self.buffer.document = Document(self.buffer.text or draft)

    async def show_in_pager(self, requests: Sequence[Request], /) -> None:
        lines = [*decision_panel.full_request_lines(requests, self.screen.width)]
        text = self.screen.render_to_ansi(lines)
        if not await self.run_with_exclusive_terminal(lambda: external_programs.show_in_pager(text)):
            self.screen.show_lines(lines)

    async def open_difftool(self, requests: Sequence[Request], /) -> None:
        await self.run_with_exclusive_terminal(
            lambda: external_programs.open_difftool(requests, self.session.workspace)
        )

    def withdraw_decided_requests(self, waiting_ids: Collection[str]) -> None:
        """Withdraw the question if its request was decided elsewhere."""
        self._undecided = waiting_ids
        if self.panel is not None and not {r["id"] for r in self.panel.requests} <= {*waiting_ids}:
            self.screen.show_note("Decided in another terminal.")
            self.panel.close_as_decided_elsewhere()

    async def run_with_exclusive_terminal(self, work: Callable[[], T]) -> T:
        """Do something that needs the whole terminal, such as an editor, in its own thread."""
        return await run_in_terminal(work, in_executor=True)

    async def pick_row(
        self, title: str, rows: Sequence[Row], marked_index: int = 0, text_reader: Iterable[None] = ()
    ) -> Row | None:
        self.picker = Picker(title, rows, lambda: terminal_size().columns, marked_index)
        self.app.layout.focus(self.picker.input)
        self.schedule_repaint_if_supported()
        self.picker.read_texts_in_thread(text_reader, self.schedule_repaint_if_supported)
        try:
            return await self.picker.chosen
        finally:
            self.picker = None
            self.app.layout.focus(self._input)
            self.schedule_repaint_if_supported()

    async def ask_yes_or_no(self, question: str) -> bool:
        picked = await self.pick_row(question, [Row("no", value=False), Row("yes", value=True)])
        return bool(picked and picked.value)

    def suggest_prompt(self, text: str) -> None:
        """Put text into an empty input line, for the person to change and send."""
        if not self.buffer.text:
            self.buffer.document = Document(text)

    def return_queued_prompts(self, prompts: Sequence[str]) -> None:
        """Put queued prompts back into the input line, before what is typed."""
        self.buffer.document = Document("\n\n".join([*prompts, *filter(None, [self.buffer.text])]))

    def _build_input_buffer(self) -> Buffer:
        session = self.session
        history = InputHistory(session.home, session.workspace, self.pastes, redact_secrets)
        completer = SessionCompleter(
            lambda name: command_offers_by_name(session, name),
            WorkspaceFiles(lambda: open_folder_workspace(session.workspace)),
        )
        return build_input_buffer(self._handle_sent_line, completer, history, self.pastes)

    def _handle_sent_line(self, text: str) -> None:
        """Handle a sent line: an answer that a question waits for, else as at any time."""
        if self.panel is not None and self.panel.takes_text and not is_slash_command(text):
            self.panel.submit_typed_text(text)
        else:
            handle_line(self.session, text)

    def _cycle_approval_mode(self) -> None:
        switch_to_next_approval_mode(self.session)
        self.schedule_repaint_if_supported()

    async def _refresh_status_line_forever(self) -> None:
        """Keep the status line's outside figures up to date."""
        while True:
            if await asyncio.to_thread(self._figures.refresh, self.session):
                self.schedule_repaint_if_supported()
            await asyncio.sleep(_WATCH_S)

    # Painting

    def _schedule_next_frame(self) -> None:
        assert self._loop is not None
        self._loop.call_later(max(self._painted_at + FRAME_S - time.monotonic(), 0), self._paint_now)

    def _paint_now(self) -> None:
        self._painting_scheduled, self._painted_at = False, time.monotonic()
        if not self.app.is_running or self.app._running_in_terminal:  # pyright: ignore[reportPrivateUsage]
            return
        self.screen.resize(terminal_size().columns)
        self._unprinted += self.screen.take_finished_output()
        live_rows = max(terminal_size().rows // 2, 3) if self.panel is None else 0
        self._live = ANSI(self.screen.live_text(live_rows))
        now, self._unprinted = split_first_print_chunk(self._unprinted)
        rendered = self.app.renderer.last_rendered_screen
        wanted = self.app.layout.container.preferred_height(
            terminal_size().columns, terminal_size().rows
        ).preferred
        with self.output.hold_writes():
            if now or (rendered and wanted < rendered.height):
                self.app.renderer.erase(leave_alternate_screen=False)
                self.output.write_raw(now.replace("\n", "\r\n"))
            self.app._redraw()  # pyright: ignore[reportPrivateUsage] - `invalidate` paints later
        if self._unprinted:
            self.schedule_repaint_if_supported()
        elif self._loop and self.session.busy and self.panel is None:
            self._spin.cancel()
            self._spin = self._loop.call_later(_SPIN_S, self.schedule_repaint_if_supported)

    def _panel_text(self) -> ANSI:
        """The question, which has the whole screen but for what is below it."""
        size, panel = terminal_size(), self._require_panel()
        below = min(self.buffer.document.line_count, size.rows // 2) + len(self.session.queue) + 2
        lines = panel.lines(size.columns, max(size.rows - below, 3))
        return ANSI(self.screen.render_to_ansi(lines).removesuffix("\n"))

    # Layout

    def _input_placeholder(self) -> str:
        """What the empty input line says: that a question takes more than its keys."""
        asks = isinstance(self.panel, decision_panel.DecisionPanel) and not self.panel.takes_text
        return "Type a reply, or / for commands" if asks else ""

    def _build_layout(self) -> HSplit:
        self._input = Window(
            build_input_control(self.buffer, self._search.control, self._input_placeholder),
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
                    Window(FormattedTextControl(self._queued_prompt_lines), style="class:queue", **lines),
                    Condition(lambda: bool(self.session.queue)),
                ),
                ConditionalContainer(
                    Window(
                        FormattedTextControl(self._panel_text),
                        dont_extend_height=True,
                        wrap_lines=True,
                    ),
                    Condition(lambda: self.panel is not None),
                ),
                ConditionalContainer(self._input, Condition(lambda: self.picker is None)),
                DynamicContainer(lambda: self.picker.container if self.picker else Window(height=0)),
                self._search,
                CompletionsMenu(max_height=8),
                Window(FormattedTextControl(self._status_text), height=1, **lines),
            ]
        )

    def _queued_prompt_lines(self) -> StyleAndTextTuples:
        return [
            ("fg:ansibrightblack", f"  queued: {text.splitlines()[0][:200]}\n") for text in self.session.queue
        ]

    def _status_text(self) -> StyleAndTextTuples:
        """The status line, or a hint about what to press for as long as it applies."""
        if self._hint:
            return [("class:dim", self._hint)]
        return status_line(self._figures.current_values(self.session), terminal_size().columns)

    # Keys

    def _record_key_press(self, _: object) -> None:
        at = self._menu.record_key_press()
        if self._hint and at - self._interrupted_at > _AGAIN_S:
            self._hint = ""

    def _build_key_bindings(self) -> KeyBindings:
        keys = KeyBindings()
        asking = Condition(lambda: self.panel is not None and self.picker is None)
        empty = Condition(lambda: not self.buffer.text)
        menu = asking & empty & Condition(lambda: not self._require_panel().text_wanted)
        queued = Condition(lambda: bool(self.session.queue)) & empty
        unsaid = empty & Condition(lambda: self.picker is None)

        keys.add("enter", filter=~asking & unsaid & ~is_searching)(
            _build_key_handler(lambda: self.session.submit_prompt(""))
        )
        keys.add("enter", filter=asking & empty & ~menu)(
            _build_key_handler(lambda: self._require_panel().submit_typed_text(""))
        )
        keys.add("c-c", filter=~is_searching)(self._interrupt_or_leave)
        keys.add("c-d", filter=empty)(_build_key_handler(self.session.leave_session))
        keys.add("c-z")(_build_key_handler(lambda: self.app.suspend_to_background()))
        keys.add("up", filter=queued)(self._edit_newest_queued_prompt)
        keys.add("escape", filter=asking, eager=True)(_build_key_handler(self._menu.go_back))
        for key, by in {"up": -1, "down": 1}.items():
            keys.add(key, filter=menu)(_build_key_handler(partial(self._menu.move_selection, by)))
        keys.add("enter", filter=menu)(self._menu.handle_key)
        keys.add("<any>", filter=menu)(self._menu.handle_key)
        return keys

    def _require_panel(self) -> Panel:
        assert self.panel is not None
        return self.panel

    def _edit_newest_queued_prompt(self, _: KeyPressEvent) -> None:
        """Take the newest queued prompt back, to change or drop it."""
        self.buffer.text = self.session.queue.pop()
        self.buffer.cursor_position = len(self.buffer.text)

    def _interrupt_or_leave(self, _: KeyPressEvent) -> None:
        """Once: stop what is running, or drop what is typed. Twice: leave."""
        now = time.monotonic()
        again, self._interrupted_at = now - self._interrupted_at < _AGAIN_S, now
        if again:
            self.session.leave_session()
        elif self.panel is not None:
            self._require_panel().go_back()
        elif self.session.busy:
            self.session.cancel()
        else:
            self.buffer.reset()
        self._hint = "Ctrl-C again leaves"


def _build_key_handler(work: Callable[[], None]) -> Callable[[KeyPressEvent], None]:
    return lambda _: work()


def run_session(options: Options, workflow: str, prompt: str = "", run: str | None = None) -> int:
    """Run a session until the person leaves; returns the exit code."""
    sys.setswitchinterval(0.001)  # lets a key interrupt the engine's thread sooner
    terminal = App(options, workflow)
    asyncio.run(terminal.run_until_exit(prompt, run))
    terminal.session.remove_unused_worktrees()
    left = terminal.session.run
    try:
        sys.stdout.write(f"Go on with: interlock -r {left}\n" if left else "")
        sys.stdout.flush()
    except OSError:  # the terminal is gone
        redirect_stdout_to_null()
    return 0
