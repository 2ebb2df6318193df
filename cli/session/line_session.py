"""line_session: a session where the cursor can't be moved: prompts and answers line by line, with the same commands."""

import asyncio
import signal
import sys
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn, TypeVar

from interlock.cli.decisions import ask_for_decisions
from interlock.cli.render.output import Paint, notify_terminal
from interlock.cli.session.commands import handle_line
from interlock.cli.session.picker import Row
from interlock.cli.session.screen import STYLES, Screen
from interlock.cli.session.session import Session
from interlock.cli.session.terminal_output import terminal_size
from interlock.cli.session.theme import DEFAULT, THEMES
from interlock.engine.client import Decision, Options
from interlock.state.errors import UserError
from interlock.state.events import NotificationEvent

T = TypeVar("T")
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_LOOK_S = 0.05
"""Seconds between checks for finished output."""


class LineTerminal:
    """Takes `App`'s place, reading and writing line by line. Nothing else happens while a line is read."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self.left = False

    async def run_until_exit(self, session: Session, prompt: str, run: str | None) -> None:
        self._cancel = session.cancel
        self._install_signal_handlers()
        session.start_engine_thread()
        if run:
            session.switch_run(run)
        if prompt:
            session.submit_prompt(prompt)
        try:
            await self._wait_until_idle(session)
            self._screen.typed_above = True
            while not self.left:
                if (line := await self._read_line()) is not None:
                    session.take(line)
                await self._wait_until_idle(session)
        finally:
            await session.close()
            self._print_finished_output()

    def _install_signal_handlers(self) -> None:
        for number in _SIGNALS:
            action = self._cancel if number == signal.SIGINT else self.end_session
            asyncio.get_running_loop().add_signal_handler(number, action)

    async def _read_line(self) -> str | None:
        """Read a line; None when the person, or a signal, ends the session. `input` may miss a signal."""
        loop, came = asyncio.get_running_loop(), asyncio.Event()
        for number in _SIGNALS:
            loop.add_signal_handler(number, lambda: (self.end_session(), came.set()))
        loop.add_reader(sys.stdin, came.set)
        sys.stdout.write("> ")
        sys.stdout.flush()
        try:
            await came.wait()
        finally:
            loop.remove_reader(sys.stdin)
            self._install_signal_handlers()
        line = "" if self.left else sys.stdin.readline()
        if not line:
            print()
            self.end_session()
            return None
        return line.strip()

    async def _wait_until_idle(self, session: Session) -> None:
        while session.is_working and not self.left:
            self._print_finished_output()
            await asyncio.sleep(_LOOK_S)
        self._print_finished_output()

    def _print_finished_output(self) -> None:
        sys.stdout.write(STYLES.sub("", self._screen.take_finished_output()))
        sys.stdout.flush()

    def schedule_repaint_if_supported(self) -> None:
        """No-op: finished output is polled."""

    def end_session(self) -> None:
        self.left = True

    def notify_person(self, event: NotificationEvent) -> None:
        notify_terminal(event, sys.stdout)

    async def ask_for_decisions(self, run: str, requests: Sequence[Mapping[str, Any]], /) -> list[Decision]:
        self._print_finished_output()
        with _raise_interrupt_on_signal():
            return ask_for_decisions(run, requests, Paint(sys.stderr))

    def withdraw_decided_requests(self, waiting_ids: Collection[str]) -> None:
        """No-op: a decision that comes too late is reported when it is made."""

    async def run_with_exclusive_terminal(self, work: Callable[[], T]) -> T:
        self._print_finished_output()
        try:
            with _raise_interrupt_on_signal():
                return work()
        except KeyboardInterrupt:
            raise UserError("Stopped.") from None

    async def pick_row(
        self,
        title: str,
        rows: Sequence[Row],
        marked_index: int = 0,
        text_reader: Iterable[None] = (),  # noqa: ARG002 - nothing here searches
    ) -> Row | None:
        for number, row in enumerate(rows, 1):
            self._screen.show_note(
                f"{'*' if number == marked_index + 1 else ' '} {number:>2}  {row.name}  {row.about}"
            )
        self._print_finished_output()
        while True:
            try:
                with _raise_interrupt_on_signal():
                    text = input(f"{title} [1-{len(rows)}, Enter: none] ").strip()
            except (EOFError, KeyboardInterrupt):
                return None
            if not text:
                return None
            if text.isdecimal() and 0 < int(text) <= len(rows):
                return rows[int(text) - 1]

    async def ask_yes_or_no(self, question: str) -> bool:
        return (
            await self.run_with_exclusive_terminal(lambda: input(f"{question} [y/N] "))
        ).strip().lower() in (
            "y",
            "yes",
        )

    def suggest_prompt(self, text: str) -> None:
        self._screen.show_note(f"It was: {text}")

    def return_queued_prompts(self, prompts: Sequence[str]) -> None:
        for text in prompts:
            self._screen.show_note(f"Not sent: {text}")


@contextmanager
def _raise_interrupt_on_signal() -> Generator[None]:
    """Let a signal interrupt reading a line: asyncio would only note it."""

    def end(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, end) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run_line_session(options: Options, workflow: str, prompt: str = "", run: str | None = None) -> int:
    screen = Screen(terminal_size().columns, THEMES[DEFAULT], color=False)
    lines = LineTerminal(screen)
    session = Session(options, workflow, screen, lines)
    session.take = lambda text: handle_line(session, text)
    asyncio.run(lines.run_until_exit(session, prompt, run))
    session.remove_unused_worktrees()
    if session.run:
        print(f"Go on with: interlock -r {session.run}")
    return 0
