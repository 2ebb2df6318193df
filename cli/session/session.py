"""session: a conversation at a terminal: what it tells becomes lines, and what a person must say is asked."""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Protocol, TypeVar

from interlock.cli.decisions import edit_in_editor
from interlock.cli.render.output import redact_secrets, to_one_line
from interlock.cli.session.picker import Row
from interlock.cli.session.screen import Screen
from interlock.cli.session.session_wording import reword_for_session
from interlock.cli.startup import resume_gc_and_start_warm_process
from interlock.engine.client import Decision, Options, Pending
from interlock.engine.client.conversation import Conversation, Notice
from interlock.engine.client.user_extensions import ExtensionReader
from interlock.state.errors import InterlockError
from interlock.state.events import Event, NotificationEvent

T = TypeVar("T")
_SAID = {
    "unfinished": "It stopped midway: press Enter to go on, or say what to do instead.",
    "left": "Left open. Enter asks again; a prompt goes on without these calls; later: interlock -r {run}",
    "beginning": "… the beginning is left out: interlock export {run}",
    "new": "A new conversation. The last one: /resume {run}",
    "forked": "{text} Back to that one: /resume {run}",
    "back": "{text} As it was: /resume {run}",
}
"""Notices that name what to type here; the others are said as they come."""


class Terminal(Protocol):
    """What a session needs from its terminal: `App`, or `Lines` where the cursor can't be moved."""

    def schedule_repaint_if_supported(self) -> None:
        """Show soon what has changed."""

    def end_session(self) -> None:
        """End the session."""

    def notify_person(self, event: NotificationEvent) -> None:
        """Notify the person by the terminal."""

    async def ask_for_decisions(self, run: str, requests: Sequence[Pending], /) -> list[Decision]:
        """Ask for decisions; a request without one is left for later."""
        ...

    def withdraw_decided_requests(self, waiting_ids: Collection[str]) -> None:
        """Withdraw the question if its request isn't among those that wait."""

    async def run_with_exclusive_terminal(self, work: Callable[[], T]) -> T:
        """Do something that needs the whole terminal."""
        ...

    async def pick_row(
        self, title: str, rows: Sequence[Row], marked_index: int = 0, text_reader: Iterable[None] = ()
    ) -> Row | None:
        """Ask for a row. `marked_index`: the one marked first. `text_reader` reads the rows' texts, a little at each
        step."""

    def suggest_prompt(self, text: str) -> None:
        """Offer a text as the next prompt."""

    def return_queued_prompts(self, prompts: Sequence[str]) -> None:
        """Give back queued prompts that won't be sent."""

    async def ask_yes_or_no(self, question: str) -> bool:
        """Ask a yes-or-no question."""
        ...


class Session(Conversation):
    """Use from the painting thread only."""

    detaches_when_closed = False
    """Whether a worker goes on with the run when the terminal is closed."""

    def __init__(self, options: Options, workflow: str, screen: Screen, terminal: "Terminal") -> None:
        super().__init__(options, workflow, _TerminalFrontEnd(screen, terminal))
        self.screen, self.terminal = screen, terminal
        self.extensions = ExtensionReader(options, self.workspace)

    def leave_session(self) -> None:
        self.terminal.end_session()

    async def edit_text_in_editor(self, text: str, suffix: str) -> str | None:
        """Edit the text in $VISUAL or $EDITOR. None after a failure, which is shown."""
        try:
            return await self.terminal.run_with_exclusive_terminal(
                lambda: edit_in_editor(text, suffix, "The text")
            )
        except InterlockError as error:
            self.report_error(error)
            return None


class _TerminalFrontEnd:
    """Shows a conversation on a screen, and asks at a terminal (`FrontEnd`)."""

    def __init__(self, screen: Screen, terminal: Terminal) -> None:
        self._screen, self._terminal = screen, terminal
        self.on_prompt_sent = screen.show_prompt
        self.on_state_changed, self.on_drive_ended = terminal.schedule_repaint_if_supported, screen.end_drive
        self.withdraw_decided_requests, self.return_queued_prompts = (
            terminal.withdraw_decided_requests,
            terminal.return_queued_prompts,
        )

    def on_event(self, event: Event, /) -> None:
        if event.type in ("finished", "tool_start"):  # a model's client, the largest import, is loaded by now
            resume_gc_and_start_warm_process()
        if isinstance(event, NotificationEvent):
            self._terminal.notify_person(event)
        self._screen(event)

    def on_notice(self, notice: Notice, /) -> None:
        if notice.kind in ("problem", "unsent"):
            self._screen.show_note(to_one_line(redact_secrets(reword_for_session(notice.text))), "bad")
        else:
            said = _SAID.get(notice.kind, "{text}") if notice.run else "{text}"
            self._screen.show_note(said.format(text=notice.text, run=notice.run))

    async def ask_for_decisions(self, run: str, requests: Sequence[Pending], /) -> Sequence[Decision]:
        return await self._terminal.ask_for_decisions(run, requests)
