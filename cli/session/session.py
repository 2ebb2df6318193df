"""session: the session's current run, its queue of prompts, and what commands and panels work with."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from interlock.cli.render.output import bug, one_line, redacted
from interlock.cli.session.completion import Available
from interlock.cli.session.driver import Driver
from interlock.engine.options import Decision, Options, Pending
from interlock.engine.read import Changes, RunRow, find_run, waiting_requests
from interlock.state.errors import BusyError, InterlockError, UserError

if TYPE_CHECKING:
    from concurrent.futures import Future

    from interlock.cli.session.asking import Row
    from interlock.cli.session.screen import Screen
    from interlock.state.events import Event, NotificationEvent

T = TypeVar("T")
_UNFINISHED = ("cancelled", "timeout", "interrupted", "budget", "lost")
"""Statuses that leave a run unfinished."""
_LOOK_S = 0.4
"""Seconds between checks for changes other processes make to the run."""
_TAKEN_UP = 5
"""Checks before a run decided elsewhere counts as ours to resume."""


@dataclass
class Used:
    """The run's figures for the status line."""

    tokens: int = 0
    """All requests of this session."""
    context: int = 0
    """The last request: how much of the model's window is filled."""


class Terminal(Protocol):
    """What a session needs from its terminal: `App`, or `Lines` where the cursor can't be moved."""

    def paint(self) -> None: ...
    def exit(self) -> None: ...
    def ring(self, event: "NotificationEvent") -> None: ...
    async def decide(self, run: str, requests: Sequence[Mapping[str, Any]]) -> list[Decision]: ...
    def still_asked(self, waiting: Collection[str]) -> None: ...
    async def handed_over(self, work: Callable[[], T]) -> T: ...
    async def pick(self, title: str, rows: "Sequence[Row]", at: int = 0) -> "Row | None": ...
    def suggest(self, text: str) -> None: ...
    def take_back(self, texts: Sequence[str]) -> None: ...
    async def confirm(self, question: str) -> bool: ...


class Session:
    """One conversation at a time, each a durable run. Use from the painting thread only."""

    def __init__(self, options: Options, workflow: str, screen: "Screen", terminal: "Terminal") -> None:
        self.options: Options = options
        self.workflow, self.screen, self.terminal = workflow, screen, terminal
        self.home = options.home
        self.workspace = (options.workspace or Path.cwd()).resolve()
        self.run: str | None = None
        """None: the next prompt starts one."""
        self.model, self.mode = options.model or "", options.mode or ""
        self.approval_mode = options.approval_mode or "default"
        self.used = Used()
        self.queue: deque[str] = deque()
        """Prompts typed while the agent works."""
        self.take: Callable[[str], None] = self.submit
        """Handles a line taken from the queue."""
        self.busy = False
        self.status = ""
        """The run's status, such as `waiting` or `cancelled`; empty when it has ended or there is none."""
        self.may_yolo = self.approval_mode == "yolo"
        self.available = Available(options, self.workspace)
        self.driver = Driver(self._event)
        self.stop: Callable[[], None] | None = None
        """Stops whatever is running that isn't a run."""
        self._mode: str | None = options.mode
        self._wished: str | None = options.approval_mode
        """Mode of work and approval mode for new runs; None: settings decide."""
        self._failed = False
        """The last drive ended with an error."""
        self._later: set[str] = set()
        """Requests left for later, until the session comes back to their run."""
        self._shown: set[tuple[str, str]] = set()
        """Keys of the run's events that are on the screen already."""
        self._work: set[asyncio.Task[None]] = set()

    @property
    def at_work(self) -> bool:
        """Whether a run or a command is in progress."""
        return self.busy or bool(self._work)

    def submit(self, text: str) -> None:
        """Send a prompt, or queue it while the agent works; an empty one resumes what was interrupted."""
        if self.busy:
            if text.strip():
                self.queue.append(text)
            self.terminal.paint()
        elif text.strip() or self.status in _UNFINISHED:
            self._spawn(self._pursue(text.strip() or None))

    def cancel(self) -> None:
        """Stop what is running and put queued prompts back into the input; the next prompt resumes the run."""
        (self.stop or self.driver.cancel)()
        self._take_back()

    def _take_back(self) -> None:
        if self.queue:
            self.terminal.take_back([*self.queue])
            self.queue.clear()

    def leave(self) -> None:
        self.terminal.exit()

    async def close(self) -> None:
        """Stop what is running, and wait until it has stopped."""
        self.queue.clear()
        (self.stop or self.driver.cancel)()
        while self.driver.busy:
            await asyncio.sleep(0.02)
        for task in [*self._work]:
            task.cancel()

    def switch(self, run: str | None) -> None:
        """Continue the session with this run, or a new one. Raises `UserError` while the agent works."""
        if self.busy:
            raise UserError("The agent works. Stop it first: Ctrl-C")
        self.run, self.status, self.used = None, "", Used()
        self._later.clear()
        if run is None:
            return
        row = find_run(self.home, run, self.workspace)
        self.run, self.workflow, self.workspace = row.run, row.workflow, Path(row.workspace)
        self._spawn(self._taken_up(row))

    async def edit(self, text: str, suffix: str) -> str | None:
        """Edit the text in $VISUAL or $EDITOR. None after a failure, which is shown."""
        from interlock.cli.decisions import in_editor

        try:
            return await self.terminal.handed_over(lambda: in_editor(text, suffix, "The text"))
        except InterlockError as error:
            self.failed(error)
            return None

    def pursue(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run a command of the user's in place of the run: prompts wait for it, and `stop` ends it."""
        self._spawn(self._errors_shown(work))

    async def go_on(self) -> None:
        """Resume the run without a prompt."""
        await self._pursued(None)

    def begin_beside(self, workflow: str, prompt: str) -> None:
        """Start a run of another workflow, then return to this conversation."""

        async def work() -> None:
            kept = self.run, self.workflow, self.status, self.options
            self.run, self.workflow, self.status = None, workflow, ""
            self.options = replace(self.options, attach=(), notes=())  # they belong to this conversation
            try:
                await self._errors_shown(lambda: self._pursued(prompt))
            finally:
                self.run, self.workflow, self.status, self.options = kept

        self._spawn(work())

    def note_for_model(self, what: str, text: str) -> None:
        """Attach a note to the next prompt."""
        self.options = replace(self.options, notes=(*self.options.notes, (what, text)))

    def aside(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something beside the run; an error is shown as one line."""

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

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self.busy = True
        task = asyncio.get_running_loop().create_task(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    async def _pursue(self, prompt: str | None) -> None:
        """Send a prompt, or resume, until the run ends or the person leaves the rest for later."""
        if prompt:
            self.screen.show_prompt(prompt)
        await self._errors_shown(lambda: self._pursued(prompt))

    async def _pursued(self, prompt: str | None) -> None:
        await self._advanced(prompt, ())
        await self._settled()

    async def _errors_shown(self, work: Callable[[], Awaitable[None]]) -> None:
        """Show any error as one line and keep the session usable."""
        self.busy, well = True, False
        self.terminal.paint()
        try:
            await work()
            well = not self._failed
        except InterlockError as error:
            self.failed(error)
        except Exception as error:
            self.failed(bug(error))
        finally:
            self.busy, self.stop = False, None
            self.screen.end()
            self.terminal.paint()
        if well:
            self._next_in_line()
        else:
            self._take_back()

    def _next_in_line(self) -> None:
        if self.queue and not self.busy:
            self.take(self.queue.popleft())

    async def _settled(self) -> None:
        """Ask for pending decisions and resume with them, until nothing waits or the rest is left for later."""
        while self.run and self.status in ("waiting", "running"):
            if self.status == "running":
                await self._followed(self.run)
                continue
            requests = self._to_ask(self.run)
            decisions = await self.terminal.decide(self.run, requests) if requests else []
            self._later |= {request["id"] for request in requests} - {d.approval for d in decisions}
            if not decisions:
                self.status = await self._without_us(self.run)
                if self.status == "waiting":
                    self.screen.note(f"Left for later: /resume {self.run}, or interlock resume {self.run}")
                    return
                if self.status != "interrupted":  # resumed elsewhere, or already over
                    await self._followed(self.run)
                    continue
            try:
                await self._advanced(None, decisions)
            except BusyError:
                self.status = "running"
            except UserError as error:  # somebody decided first: ask again about what still waits
                self.failed(error)

    def _to_ask(self, run: str) -> list[Pending]:
        """Pending requests, without those left for later."""
        waiting = (request.fields for request in waiting_requests(self.home, run))
        return [request for request in waiting if request["id"] not in self._later]

    async def _without_us(self, run: str) -> str:
        """The run's status, giving whoever decided elsewhere a moment to resume it."""
        status = find_run(self.home, run).status
        for _ in range(_TAKEN_UP):
            if status != "interrupted":
                break
            await asyncio.sleep(_LOOK_S)
            status = find_run(self.home, run).status
        return status

    async def _followed(self, run: str) -> None:
        """Follow the run in its record and show it, until no other process drives it."""
        from interlock.cli.session.history import events, keyed

        self.screen.note(f"{find_run(self.home, run).owner or 'Another process'} goes on with this run.")
        while True:
            self.status = find_run(self.home, run).status  # before the record, which may keep growing
            by_key = keyed(await asyncio.to_thread(events, self.home, run))
            for key in [key for key in by_key if key not in self._shown]:
                self._shown.add(key)
                self.screen(by_key[key])
            if self.status != "running":
                break
            await asyncio.sleep(_LOOK_S)
        self.screen.end()
        self._stands()

    async def watch(self) -> None:
        """Watch for what others do to the run: decisions while they are asked here, and whole drives."""
        changed = Changes(self.home)
        while True:
            await asyncio.sleep(_LOOK_S)
            if not self.run or self.driver.busy or not changed():
                continue
            if self.busy:
                waiting = {request.id for request in waiting_requests(self.home, self.run)}
                self.terminal.still_asked(waiting)
            elif find_run(self.home, self.run).status == "running":
                self.status = "running"
                self._spawn(self._errors_shown(self._settled))

    async def _advanced(self, prompt: str | None, decisions: Sequence[Decision]) -> None:
        """Start or resume the run, and take over the outcome of whichever run carried on its work."""
        if self.run is None or (self.status == "waiting" and not decisions):
            self.run, self.status = None, ""
            outcome = await self.driver.start(self.workflow, prompt or "", self._drive_options(new=True))
        else:
            outcome = await self.driver.go_on(
                self.run, self._drive_options(prompted=prompt is not None), prompt, decisions
            )
        self.run, self.workflow, self.status = outcome.run, outcome.workflow, outcome.status
        self._failed = bool(outcome.error)
        self.screen.end()
        if outcome.notifying:
            outcome.notifying.add_done_callback(self._notified)
        await self._learn()
        self._stands()

    def _drive_options(self, new: bool = False, prompted: bool = True) -> Options:
        """Options of the next drive. A mode is passed once: the run keeps it and may have changed it since."""
        options = self.options
        self.options = replace(options, approval_mode=None, mode=None, compress=False)
        if prompted:
            self.options = replace(self.options, attach=(), notes=())
        self._mode, self._wished = options.mode or self._mode, options.approval_mode or self._wished
        if new:
            return replace(options, workspace=self.workspace, approval_mode=self._wished, mode=self._mode)
        return replace(options, workspace=None)

    def _stands(self) -> None:
        """Keep the status only if the run waits or is unfinished."""
        if self.status in _UNFINISHED:
            self.screen.note("It stopped midway: press Enter to go on, or say what to do instead.")
        elif self.status not in ("waiting", "running"):
            self.status = ""

    def _notified(self, sent: "Future[list[str]]") -> None:
        for problem in sent.result():
            self.screen.note(one_line(problem), "bad")

    def failed(self, error: InterlockError) -> None:
        self.screen.note(one_line(redacted(str(error))), "bad")

    async def _taken_up(self, row: RunRow) -> None:
        """Show a run's conversation and its status."""
        from interlock.cli.session.history import events, newest

        async def shown() -> None:
            recent, before = newest(await asyncio.to_thread(events, self.home, row.run))
            if before:
                self.screen.note(f"… the beginning is left out: interlock export {row.run}")
            for event in recent:
                self.screen(event)
            self.screen.end()
            self.status = row.status
            await self._learn()
            self._stands()
            await self._settled()

        await self._errors_shown(shown)

    async def _learn(self) -> None:
        """Read the run's state: a person, a plan or the model may have changed its mode."""
        from interlock.cli.session.history import events, keyed
        from interlock.engine.store.checkpoints import state_at

        if self.run is None:
            return
        try:
            state = await asyncio.to_thread(state_at, self.home, self.run)
        except UserError:  # no checkpoint yet
            return
        self._shown = {*keyed(await asyncio.to_thread(events, self.home, self.run))}
        if self.options.approval_mode is None:
            self.approval_mode = str(state.get("approval_mode") or self.approval_mode)
        self.mode = str(state.get("mode") or "")
        self.model = str(state.get("model") or self.model)

    def _event(self, event: "Event") -> None:
        from interlock.state.events import Finished, HandOver, Init, NotificationEvent

        if isinstance(event, NotificationEvent):
            self.terminal.ring(event)
        elif isinstance(event, Init):
            self.run = self.run or event.session_id
            self.model = event.model
        elif isinstance(event, HandOver) and self.workflow == "plan":
            self.run = event.run
        elif isinstance(event, Finished):
            self.used.tokens += event.usage.get("input", 0) + event.usage.get("output", 0)
            if not event.agent:
                self.used.context = event.usage.get("input", 0) + event.usage.get("output", 0)
        self.screen(event)
