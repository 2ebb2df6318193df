"""session: the run that a session goes on with, what waits to be said, and what commands and panels work with."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from interlock.cli.render.output import one_line, redacted
from interlock.cli.session.available import Available
from interlock.cli.session.driver import Driver
from interlock.engine.options import Decision, Options, Outcome
from interlock.engine.read.runs import RunRow, find_run, waiting_requests
from interlock.state.errors import InterlockError, UserError

if TYPE_CHECKING:
    from concurrent.futures import Future

    from interlock.cli.session.picker import Row
    from interlock.cli.session.screen import Screen
    from interlock.state.events import Event, NotificationEvent

T = TypeVar("T")
_UNFINISHED = ("cancelled", "timeout", "interrupted", "budget", "lost")
"""Ends after which a run stands in the middle of something."""


class Terminal(Protocol):
    """What a session asks of the terminal that it runs in (`app.py`)."""

    def paint(self) -> None:
        """Soon, from any thread."""
        ...

    def exit(self) -> None: ...

    def ring(self, event: "NotificationEvent") -> None:
        """From any thread."""
        ...

    async def decide(self, run: str, requests: Sequence[Mapping[str, Any]]) -> list[Decision]:
        """What the person says to them now; what isn't among the answers is left for later."""
        ...

    async def handed_over(self, work: Callable[[], T]) -> T:
        """Do something that needs the whole terminal, such as an editor, in a thread of its own."""
        ...

    async def pick(self, title: str, rows: "Sequence[Row]", at: int = 0) -> "Row | None": ...

    def suggest(self, text: str) -> None:
        """Into the input line, where nothing is typed."""
        ...

    async def confirm(self, question: str) -> bool: ...


@dataclass
class Used:
    """What the status line says of the run."""

    tokens: int = 0
    """Of all requests in this session."""
    context: int = 0
    """Of the last request: what the model's window holds."""


class Session:
    """One conversation at a time; each is a durable run. Used from the painting thread only."""

    def __init__(self, options: Options, workflow: str, screen: "Screen", terminal: Terminal) -> None:
        self.options, self.workflow, self.screen, self.terminal = options, workflow, screen, terminal
        self.home = options.home
        self.workspace = (options.workspace or Path.cwd()).resolve()
        self.run: str | None = None
        """None: the next prompt begins one."""
        self.model, self.mode = options.model or "", options.mode or ""
        self.approval_mode = options.approval_mode or "default"
        self.used = Used()
        self.queue: deque[str] = deque()
        """Prompts that were typed while the agent works."""
        self.busy = False
        self.status = ""
        """Of the run, as it stands: `waiting`, `cancelled`, …; empty: it has ended, or there is none."""
        self.may_yolo = self.approval_mode == "yolo"
        self.available = Available(options, self.workspace)
        self.driver = Driver(self._event)
        self.stop: Callable[[], None] | None = None
        """Ends what is under way besides a run."""
        self._work: set[asyncio.Task[None]] = set()

    def submit(self, text: str) -> None:
        """A prompt, which waits for its turn while the agent works; nothing at all goes on with what was cut short."""
        if self.busy:
            if text.strip():
                self.queue.append(text)
            self.terminal.paint()
        elif text.strip() or self.status in _UNFINISHED:
            self._spawn(self._pursue(text.strip() or None))

    def cancel(self) -> None:
        """Stop what is under way; a run stays, and goes on with the next prompt."""
        (self.stop or self.driver.cancel)()

    def leave(self) -> None:
        self.terminal.exit()

    async def close(self) -> None:
        """Stop what is under way, and wait until it has."""
        self.queue.clear()
        self.cancel()
        for task in [*self._work]:
            task.cancel() if not self.driver.busy else None
        while self.driver.busy:
            await asyncio.sleep(0.02)

    def switch(self, run: str | None) -> None:
        """The session goes on with this run, or a new one. Raises `UserError`."""
        if self.busy:
            raise UserError("The agent works. Stop it first: Ctrl-C")
        self.run, self.status, self.used = None, "", Used()
        if run is None:
            return
        row = find_run(self.home, run, self.workspace)
        self.run, self.workflow, self.workspace = row.run, row.workflow, Path(row.workspace)
        self._spawn(self._taken_up(row))

    async def pick(self, title: str, rows: "Sequence[Row]", at: int = 0) -> "Row | None":
        """`at`: the one that is marked first."""
        return await self.terminal.pick(title, rows, at)

    async def confirm(self, question: str) -> bool:
        return await self.terminal.confirm(question)

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Slow things, away from the painting loop."""
        return await asyncio.to_thread(work)

    async def edit(self, text: str, suffix: str) -> str | None:
        """In $VISUAL or $EDITOR. None: it failed, which is told."""
        from interlock.cli.decisions import in_editor

        try:
            return await self.terminal.handed_over(lambda: in_editor(text, suffix, "The text"))
        except InterlockError as error:
            self.failed(error)
            return None

    def pursue(self, work: Callable[[], Awaitable[None]]) -> None:
        """Something of the user's own in the run's place: prompts wait for it, and `stop` ends it."""
        self._spawn(self._told(work))

    async def go_on(self) -> None:
        """With the run as it stands, without a prompt."""
        await self._decided(None)

    def begin_beside(self, workflow: str, prompt: str) -> None:
        """A run of another workflow; then this conversation goes on as it was."""

        async def work() -> None:
            kept = self.run, self.workflow, self.status
            self.run, self.workflow, self.status = None, workflow, ""
            try:
                await self._told(lambda: self._decided(prompt))
            finally:
                self.run, self.workflow, self.status = kept

        self._spawn(work())

    def note_for_model(self, what: str, text: str) -> None:
        """With the next prompt."""
        self.options = replace(self.options, notes=(*self.options.notes, (what, text)))

    def aside(self, work: Coroutine[Any, Any, None]) -> None:
        """Something beside the run; what goes wrong is one line."""

        async def done() -> None:
            try:
                await work
            except InterlockError as error:
                self.failed(error)
            self.terminal.paint()
            self._next_in_line()

        task = asyncio.get_running_loop().create_task(done())
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    async def hand_over(self, work: Callable[[], T]) -> T:
        """What needs the whole terminal."""
        return await self.terminal.handed_over(work)

    def suggest(self, text: str) -> None:
        """Something to send, which the person can change first."""
        self.terminal.suggest(text)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self.busy = True
        task = asyncio.get_running_loop().create_task(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    async def _pursue(self, prompt: str | None, decisions: Sequence[Decision] = ()) -> None:
        """A prompt, or going on: to its end, or to where a person leaves the rest for later."""
        if prompt:
            self.screen.said(prompt)
        await self._told(lambda: self._decided(prompt, decisions))

    async def _told(self, work: Callable[[], Awaitable[None]]) -> None:
        """Whatever goes wrong is one line, and the session can be used."""
        self.busy = True
        self.terminal.paint()
        try:
            await work()
        except InterlockError as error:
            self.failed(error)
        finally:
            await self._learn()
            self.busy, self.stop = False, None
            self.screen.end()
            self.terminal.paint()
        if self.status not in (*_UNFINISHED, "failed"):
            self._next_in_line()

    def _next_in_line(self) -> None:
        from interlock.cli.session.commands import typed

        if self.queue and not self.busy:
            typed(self, self.queue.popleft())

    async def _decided(self, prompt: str | None, decisions: Sequence[Decision] = ()) -> None:
        outcome = await self._advanced(prompt, decisions)
        while outcome.status == "waiting":
            decisions = await self._asked(outcome.run)
            if not decisions:
                self.screen.note(
                    f"Left for later. Come back with /resume {outcome.run}, or: {outcome.resume_command}"
                )
                return
            outcome = await self._advanced(None, decisions)

    async def _asked(self, run: str) -> list[Decision]:
        return await self.terminal.decide(
            run, [request.fields for request in waiting_requests(self.home, run)]
        )

    async def _advanced(self, prompt: str | None, decisions: Sequence[Decision]) -> Outcome:
        """One drive, and on with the run that carries out a plan."""
        if self.run is None or (self.status == "waiting" and not decisions):
            self.run, self.status = None, ""
            outcome = await self.driver.start(self.workflow, prompt or "", self._drive_options(new=True))
        else:
            outcome = await self.driver.go_on(
                self.run, self._drive_options(prompted=prompt is not None), prompt, decisions
            )
        while outcome.status == "approved" and (following := outcome.output.get("main_run")):
            self._ended(outcome)
            self.screen.note(f"The plan is approved; run {following} carries it out.")
            self.run = following
            outcome = await self.driver.go_on(
                following, replace(self._drive_options(prompted=False), approval_mode=None)
            )
        self._ended(outcome)
        return outcome

    def _drive_options(self, new: bool = False, prompted: bool = True) -> Options:
        """Of the next drive. What was asked of a run is kept by it: its mode may have moved since."""
        given = self.options
        self.options = replace(given, approval_mode=None, compress=False)
        if prompted:
            self.options = replace(self.options, attach=(), notes=())
        return (
            replace(given, workspace=self.workspace, approval_mode=self.approval_mode)
            if new
            else replace(given, workspace=None)
        )

    def _ended(self, outcome: Outcome) -> None:
        self.run, self.workflow = outcome.run, outcome.workflow
        self.status = outcome.status if outcome.status in (*_UNFINISHED, "waiting") else ""
        self.screen.end()
        if outcome.notifying:
            outcome.notifying.add_done_callback(self._notified)
        if outcome.status == "cancelled":
            self.screen.note("Say what to do instead, or press Enter to go on.")

    def _notified(self, sent: "Future[list[str]]") -> None:
        for problem in sent.result():
            self.screen.note(one_line(problem), "bad")

    def failed(self, error: InterlockError) -> None:
        self.screen.note(one_line(redacted(str(error))), "bad")

    async def _taken_up(self, row: RunRow) -> None:
        """Show the conversation of a run, and where it stands."""
        from interlock.cli.session.history import events, newest

        async def shown() -> None:
            await self._learn()
            told, before = newest(await asyncio.to_thread(events, self.home, row.run))
            if before:
                self.screen.note(f"… the beginning is left out: interlock export {row.run}")
            for event in told:
                self.screen(event)
            self.screen.end()
            self.status = row.status if row.status in (*_UNFINISHED, "waiting") else ""
            if row.status == "interrupted":
                self.screen.note("This run was interrupted. Press Enter to go on.")
            if row.status == "waiting":
                decisions = await self._asked(row.run)
                if decisions:
                    await self._decided(None, decisions)

        await self._told(shown)

    async def _learn(self) -> None:
        """What the run's state says: its mode may have been moved by a person, a plan or the model."""
        from interlock.engine.read.snapshot import state_at

        if self.run is None:
            return
        try:
            state = await asyncio.to_thread(state_at, self.home, self.run)
        except UserError:  # it has no checkpoint yet
            return
        if self.options.approval_mode is None:
            self.approval_mode = str(state.get("approval_mode") or self.approval_mode)
        self.mode = str(state.get("mode") or "")
        self.model = str(state.get("model") or self.model)

    def _event(self, event: "Event") -> None:
        """On the event bus's thread."""
        from interlock.state.events import Finished, Init, NotificationEvent

        if isinstance(event, NotificationEvent):
            self.terminal.ring(event)
        elif isinstance(event, Init):
            self.run = self.run or event.session_id
            self.model = event.model
        elif isinstance(event, Finished):
            self.used.tokens += event.usage.get("input", 0) + event.usage.get("output", 0)
            if not event.agent:
                self.used.context = event.usage.get("input", 0) + event.usage.get("output", 0)
        self.screen(event)
