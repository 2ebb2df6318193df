"""conversation: one conversation at a time, each a durable run: what goes on in it, whoever shows it (`FrontEnd`).

Used from the front end's own event loop; runs are driven in a thread beside it.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import aclosing, closing
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeVar

from interlock.engine.client import ENDED, TALKING, Client, Decision, Options, Outcome, Pending, RunRow
from interlock.engine.client.following import RunStatus
from interlock.engine.client.record import (
    MOST_MESSAGES,
    newest_events,
    read_conversation_events,
    read_undos_unseen_by_model,
)
from interlock.engine.driver.decision_loop import DRIVEN_ELSEWHERE, run_decision_loop
from interlock.engine.store import make_change_detector
from interlock.state.errors import STOPPED, InterlockError, UserError, as_bug_error
from interlock.state.events import (
    Asking,
    Cancelled,
    Event,
    Finished,
    HandOver,
    Init,
    Result,
    ToolResultEvent,
    Undone,
)

if TYPE_CHECKING:
    from concurrent.futures import Future

    from interlock.engine.worktrees import EnteredWorktree


RunInput = str | Mapping[str, Any]
"""What a run starts with: a prompt, or its whole input."""
UNFINISHED = ("cancelled", "timeout", "interrupted", "budget", "lost")
"""Statuses that leave a run unfinished."""


@dataclass
class TokenCounts:
    """The run's figures so far."""

    tokens: int = 0
    """All requests of this conversation."""
    context: int = 0
    """The last request: how much of the model's window is filled."""
    tools: int = 0
    """Of it, the declarations of tools, estimated."""
    window: int = 0
    """The model's window; 0: not known yet."""

    def record_request(self, event: "Asking") -> None:
        self.tools, self.window, self.context = event.tools, event.window, event.tokens

    def add_reply_usage(self, event: "Finished") -> None:
        used = event.usage.get("input", 0) + event.usage.get("output", 0)
        self.tokens += used
        if used and not event.agent:
            self.context = used


Kind = Literal[
    "problem",
    "unsent",
    "unfinished",
    "left",
    "elsewhere",
    "beginning",
    "unchanged",
    "new",
    "forked",
    "back",
    "chosen",
]


class Notice(NamedTuple):
    """Something to tell a person that is no event of a run; a front end may say it in words of its own."""

    kind: Kind
    text: str
    run: str = ""
    """The run that it names."""


class FrontEnd(Protocol):
    """Who shows a conversation, and asks the person."""

    def on_event(self, event: "Event", /) -> None:
        """An event of the run, on another thread while it is driven."""
        ...

    def on_notice(self, notice: Notice, /) -> None: ...

    def on_prompt_sent(self, prompt: str, /) -> None:
        """The person's prompt is sent."""
        ...

    def on_state_changed(self) -> None:
        """A figure, the queue or the status is another."""
        ...

    def on_drive_ended(self) -> None:
        """Nothing moves until the next event."""
        ...

    async def ask_for_decisions(self, run: str, requests: Sequence[Pending], /) -> Sequence[Decision]:
        """The person's decisions; a request without one is left for later."""
        ...

    def withdraw_decided_requests(self, waiting_ids: Collection[str], /) -> None:
        """Requests that wait still, of those being asked; the others were decided elsewhere."""
        ...

    def return_queued_prompts(self, prompts: Sequence[str], /) -> None:
        """Prompts in the queue won't be sent: the person may change them."""
        ...


_LOOP_HINT = "Go on without loop detection: /loops off. Or send a prompt that shows another way."
_RUN_FIELDS = (
    *("run", "workflow", "status", "options", "model", "answering"),
    *("mode", "approval_mode", "ended_by_loop", "_cursor", "_updated"),
)
"""What a run beside this conversation doesn't change in it."""
_LOOK_S = 0.4
"""Seconds between checks for changes that other processes make to the run."""


Work = Callable[[], Awaitable[None]]


class WorkScheduler:
    """Whoever shows it hears how each piece of work ends; an error is shown as one line."""

    status = ""
    """The run's status, such as `waiting` or `cancelled`; empty when it has ended or there is none."""
    busy = False
    _last: Outcome | None = None
    """How the last drive ended."""
    _stopped = False
    """Somebody stopped what was about to be driven."""

    def __init__(self, front: FrontEnd, take: Callable[[str], None]) -> None:
        self.front = front
        self.queue: deque[str] = deque()
        """Lines sent while the agent works."""
        self.take: Callable[[str], None] = take
        """Handles a line taken from the queue."""
        self.stop: Callable[[], None] | None = None
        """Stops whatever is running that isn't a run."""
        self._work: set[asyncio.Task[None]] = set()

    @property
    def is_working(self) -> bool:
        """Whether a run or a command is in progress."""
        return self.busy or bool(self._work)

    def run_exclusively(self, work: Work) -> None:
        """Do something in place of the run: prompts wait for it, and `stop` ends it."""
        self._mark_busy_and_start(self._run_and_show_errors(work))

    def run_in_background(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something beside the run; an error is shown as one line."""

        async def done() -> None:
            try:
                await work
            except InterlockError as error:
                self.report_error(error)
            self.front.on_state_changed()
            self._take_next_prompt_if_idle()

        self._create_task(done())

    def report_error(self, error: InterlockError, /) -> None:
        self.send_notice("problem", str(error))

    def send_notice(self, kind: Kind, text: str, run: str = "") -> None:
        self.front.on_notice(Notice(kind, text, run))

    def _mark_busy_and_start(self, work: Coroutine[Any, Any, None]) -> None:
        self.busy, self._stopped = True, False
        self._create_task(work)

    def _create_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    async def _run_and_show_errors(self, work: Work) -> None:
        """Show any error as one line and keep the conversation usable."""
        self.busy, well = True, False
        self.front.on_state_changed()
        try:
            await work()
            well = not (self._last and self._last.error and self._last.status not in STOPPED)
        except InterlockError as error:
            self.report_error(error)
        except Exception as error:
            self.report_error(as_bug_error(error))
        finally:
            self.busy, self.stop = False, None
            self.front.on_drive_ended()
            self.front.on_state_changed()
        if well and self.status != "waiting":
            self._take_next_prompt_if_idle()
        else:
            self._return_queued_prompts()

    def _take_next_prompt_if_idle(self) -> None:
        if self.queue and not self.busy:
            self.take(self.queue.popleft())

    def _return_queued_prompts(self) -> None:
        if self.queue:
            self.front.return_queued_prompts([*self.queue])
            self.queue.clear()


T = TypeVar("T")


class EngineThread:
    """Used from the front end's thread, by one drive at a time."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run_event_loop, name="engine", daemon=True)
        self.busy = False

    def start(self) -> None:
        """Start the thread, which first imports what a run needs."""
        self._thread.start()

    def _run_event_loop(self) -> None:
        asyncio.set_event_loop(self._loop)
        import_module("interlock.engine.driver.runner")  # heavy: imported while the person types

        self._loop.run_forever()

    async def await_drive(self, drive: Coroutine[Any, Any, T]) -> T:
        """Await a drive. Raises `InterlockError`."""
        self.busy = True
        try:
            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(drive, self._loop))
        except InterlockError:
            raise
        except Exception as error:
            raise as_bug_error(error) from error
        finally:
            self.busy = False

    def stop_drive_with_retries(self, stop_drive: Callable[[], bool]) -> None:
        """Call `stop_drive` until it finds the drive, whose first step may be still to come."""
        if self.busy:
            self._loop.call_soon_threadsafe(lambda: stop_drive() or self.stop_drive_with_retries(stop_drive))


class Conversation(WorkScheduler):
    """What a person at one front end does with runs, one after the other."""

    next_id: str | None = None
    """Id of the run that the next prompt starts; None: any."""
    shown_at_most = MOST_MESSAGES
    """Messages shown of a run that is taken up."""
    ended_by_loop = False
    """The last drive ended the run for a loop."""
    _deciding = False
    _detaching = False
    """The drive ends for a worker, which goes on: that it ends is no news."""
    _moved = False
    """The run's folder isn't on this machine: it goes on in the one that the options name."""

    def __init__(self, options: Options, workflow: str, front: FrontEnd) -> None:
        super().__init__(front, self.submit_prompt)
        self.options: Options = options
        self.workflow, self.home = workflow, options.home
        self.client = Client(options)
        self.workspace = (options.workspace or Path.cwd()).resolve()
        self.run: str | None = None
        """None: the next prompt starts one."""
        self.model, self.mode = options.model or "", options.mode or ""
        self.answering = ""
        """The model that answered last; empty: none yet, or another was chosen since."""
        self.approval_mode = options.approval_mode or "default"
        self.used = TokenCounts()
        self.images: Callable[[str], Sequence[Path]] = lambda _: ()
        """The images that a prompt names."""
        self.may_yolo = self.approval_mode == "yolo"
        self._thread = EngineThread()
        self._mode: str | None = options.mode
        self._wished: str | None = options.approval_mode
        """Mode of work and approval mode for new runs; None: settings decide."""
        self._granted = False
        """The approval mode for new runs is what a run became when the person allowed all edits."""
        self._later: set[str] = set()
        """Requests left for later, until the person comes back to their run."""
        self._entered: list[EnteredWorktree] = []
        """The git worktrees that this conversation was moved to."""
        self._cursor = ""
        """The place in the run's record up to which everything was shown."""
        self._updated = 0.0
        """When the run had changed last at that place, in Unix time."""

    @property
    def required_run(self) -> str:
        """Raises `UserError` before anything has run."""
        if self.run is None:
            raise UserError("Nothing has run yet in this conversation. Say what to do first, or: /resume")
        return self.run

    def start_engine_thread(self) -> None:
        """Start what takes time before the first run."""
        self._thread.start()

    def submit_prompt(self, text: str) -> None:
        """Send a prompt, or queue it while the agent works; an empty one resumes, or asks what was left open."""
        if self.busy:
            self.queue.extend([text] if text.strip() else ())
            self.front.on_state_changed()
        elif text.strip() or self.status in UNFINISHED:
            self._mark_busy_and_start(self._send_prompt(text.strip() or None))
        elif self.status == "waiting":
            self.ask_all_pending_requests()

    def cancel(self) -> None:
        """Stop what is running and give queued prompts back; the next prompt resumes the run."""
        self._detaching = False
        self._stop_work()
        self._return_queued_prompts()

    def _stop_work(self) -> None:
        if self.stop is not None:
            self.stop()
        elif self._thread.busy:
            self._thread.stop_drive_with_retries(self.client.stop_drives)
        else:
            self._stopped = self.busy and not self._deciding

    async def close(self) -> None:
        """Stop what is running, and wait until it has stopped."""
        self.queue.clear()
        self._stop_work()
        while self._thread.busy:
            await asyncio.sleep(0.02)
        for task in [*self._work]:
            task.cancel()

    def switch_run(self, run: str | None) -> None:
        """Continue with this run, or a new one. Raises `UserError` while the agent works."""
        if self.busy:
            raise UserError("The agent works. Stop it first: Ctrl-C")
        self.run, self.status, self.used, self.answering = None, "", TokenCounts(), ""
        self._later.clear()
        if run is None:  # what the person sees is what the next prompt runs with
            if self.approval_mode == "yolo" and not self.may_yolo:
                self.approval_mode = self._wished or "default"
            return
        row = self.client.find_run(run, self.workspace)
        self.run, self.workflow, place = row.run, row.workflow, Path(row.workspace)
        self._moved = self.options.workspace is not None and not place.is_dir()
        self.workspace = self.workspace if self._moved else place
        self._mark_busy_and_start(self._show_run_and_ask_decisions(row))

    def move_to_worktree(self, entered: "EnteredWorktree") -> None:
        """Let the next run, which starts a conversation, work in a git worktree."""
        self._entered.append(entered)
        self.options = replace(
            self.options, workspace=entered.options.workspace, worktree=entered.options.worktree
        )
        self.workspace = (self.options.workspace or self.workspace).resolve()
        self.client = Client(self.options, self.client.live_drives)

    def remove_unused_worktrees(self) -> None:
        """Remove the worktrees that were made for a conversation that nobody began. Raises `UserError`."""
        for entered in self._entered:
            entered.remove_if_unused()

    def ask_all_pending_requests(self) -> None:
        """Ask about everything that waits, also what was left for later."""
        self._later.clear()
        self._mark_busy_and_start(self._run_and_show_errors(self._run_decision_loop))

    async def detach_run(self) -> None:
        """Hand the run over to a worker, which goes on with it. Raises `UserError` if nothing of it is left to do."""
        from interlock.engine.client.fleet import with_host_queue

        run = self.required_run
        if self.queue:
            raise UserError("A prompt is queued, which a worker can't send. Take it back first: Esc")
        if (await asyncio.to_thread(self.client.find_run, run)).queue:
            return  # workers drive it
        if self._thread.busy:
            self.send_notice("chosen", "A worker takes over once what runs now has ended. Esc cancels it.")
            self._detaching = True
            self._thread.stop_drive_with_retries(self.client.drain_drives)
            while self._thread.busy:
                await asyncio.sleep(0.02)
            if not self._detaching:
                raise UserError("The run was stopped, and no worker has it.")
        if (row := await asyncio.to_thread(self.client.find_run, run)).status in ENDED:
            self._detaching = False
            raise UserError(f"Run {run} is {row.status}: nothing of it is left to do.")
        options = await asyncio.to_thread(with_host_queue, self._take_next_drive_options(has_prompt=False))
        await self._thread.await_drive(Client(options).resume(run))

    async def resume_run(self) -> None:
        """Resume the run without a prompt."""
        await self._drive_until_settled(None)

    def run_side_workflow(
        self, workflow: str, prompt: RunInput, on_success: Callable[[Outcome], None] = lambda _: None
    ) -> None:
        """Start a run of another workflow, then return to this conversation. `on_success`: called if it ends well."""

        async def work() -> None:
            kept, used = {name: getattr(self, name) for name in _RUN_FIELDS}, replace(self.used)
            self.run, self.workflow, self.status, self._last = None, workflow, "", None
            self.options = replace(self.options, attach=(), notes=())  # they belong to this conversation
            try:
                await self._run_and_show_errors(lambda: self._drive_until_settled(prompt))
                if self._last and self._last.status == "done":
                    on_success(self._last)
            finally:
                vars(self).update(kept)
                self.used = replace(used, tokens=self.used.tokens)

        self._mark_busy_and_start(work())

    def attach_note(self, label: str, text: str) -> None:
        """Attach a note to the next prompt."""
        self.options = replace(self.options, notes=(*self.options.notes, (label, text)))

    async def _send_prompt(self, prompt: str | None) -> None:
        """Send a prompt, or resume, until the run ends or the person leaves the rest for later."""

        async def work() -> None:
            if prompt:
                await self._show_missed_drive()
                self.front.on_prompt_sent(prompt)
                self.options = replace(self.options, attach=(*self.options.attach, *self.images(prompt)))
            await self._drive_until_settled(prompt)

        await self._run_and_show_errors(work)

    async def _drive_until_settled(self, prompt: RunInput | None) -> None:
        await self._drive_once(prompt, ())
        await self._run_decision_loop()

    async def _run_decision_loop(self) -> None:
        """Ask for pending decisions and go on with them, until nothing waits or the rest is left for later."""
        if not self.run or self.status not in ("waiting", *DRIVEN_ELSEWHERE):
            return
        outcome = Outcome(self.run, self.workflow, self.status, 0)
        outcome = await run_decision_loop(
            self.home, outcome, self, self._resume_with_decisions, self._follow_other_driver, self._later
        )
        if outcome.status == "waiting":
            self.status = "waiting"
            self.send_notice("left", "Left for later.", outcome.run)

    async def decide(self, outcome: Outcome, requests: Sequence[Pending], /) -> Sequence[Decision]:
        self._deciding, self._stopped = True, False
        try:
            return await self.front.ask_for_decisions(outcome.run, requests)
        finally:
            self._deciding = False

    on_decisions_refused = WorkScheduler.report_error

    async def _resume_with_decisions(self, _run: str, decisions: Sequence[Decision]) -> Outcome:
        return await self._drive_once(None, decisions)

    async def _follow_other_driver(self, run: str) -> str:
        """Follow the run in its record and show it, until no other process drives it."""
        row = self.client.find_run(run)
        who = "A worker" if row.queue else f"Another process{f' ({row.owner})' if row.owner else ''}"
        self.send_notice("elsewhere", f"{who} drives this run.", run)
        async with aclosing(self.client.follow_events(run, self._cursor)) as found:
            async for event, place in found:
                self._cursor = place or self._cursor
                if not isinstance(event, RunStatus):
                    self.front.on_event(event)
                    continue
                self.status = event.status
                if event.status not in DRIVEN_ELSEWHERE:
                    break
        status = self.status
        self.front.on_drive_ended()
        self._report_unfinished_or_clear_status()
        return status

    async def _show_missed_drive(self) -> None:
        """Show a drive of another process that was over before it could be followed."""
        run = self.run
        if run is None or (await asyncio.to_thread(self.client.find_run, run)).updated == self._updated:
            return
        async with aclosing(self.client.follow_events(run, self._cursor)) as found:
            async for event, _ in found:
                if isinstance(event, RunStatus):
                    break
                if not isinstance(event, Undone):  # which was told when it was done here
                    self.front.on_event(event)
        self.front.on_drive_ended()

    async def watch_external_changes(self) -> None:
        """Watch for what others do to the run: decisions while they are asked here, and whole drives."""
        with closing(make_change_detector(self.home)) as changed:
            while True:
                await asyncio.sleep(_LOOK_S)
                if not self.run or self._thread.busy or not changed():
                    continue
                if self.busy:
                    self.front.withdraw_decided_requests(
                        {request.id for request in self.client.waiting_requests(self.run)}
                    )
                elif (status := self.client.find_run(self.run).status) in DRIVEN_ELSEWHERE:
                    self.status = status
                    self._mark_busy_and_start(self._run_and_show_errors(self._run_decision_loop))

    async def _drive_once(self, prompt: RunInput | None, decisions: Sequence[Decision]) -> Outcome:
        """Start or resume the run, and take over the outcome of whichever run carried on its work."""
        if self.run is None:
            named, self.next_id = self.next_id, None
            if self.workflow in TALKING:  # settings may want a worktree
                await self._enter_wanted_worktree()
            client = Client(self._take_next_drive_options(starts_run=True), self.client.live_drives)
            field = (await asyncio.to_thread(client.load_workflow, self.workflow)).prompt_field or "prompt"
            given = prompt if isinstance(prompt, Mapping) else {field: prompt} if prompt else {}
            work = client.start(self.workflow, given, renderers=[self._handle_event], run=named)
        else:
            client = Client(
                self._take_next_drive_options(has_prompt=prompt is not None), self.client.live_drives
            )
            text = prompt if isinstance(prompt, str) else None
            work = client.resume(
                self.run, text, decisions, renderers=[self._handle_event], replace_unfinished=True
            )
        if self._stopped:  # once it is driven, so that the prompt is in the record
            asyncio.get_running_loop().call_soon(
                self._thread.stop_drive_with_retries, self.client.stop_drives
            )
        outcome = await self._thread.await_drive(work)
        self._last, self.run, self.workflow = outcome, outcome.run, outcome.workflow
        self.status, self.ended_by_loop = outcome.status, (outcome.error or {}).get("type") == "loop_detected"
        self.front.on_drive_ended()
        if outcome.notifying:
            outcome.notifying.add_done_callback(self._report_unsent_notifications)
        await self._refresh_from_run_state()
        self._report_unfinished_or_clear_status()
        return outcome

    async def _enter_wanted_worktree(self) -> None:
        here = Client(replace(self.options, workspace=self.workspace))
        if entered := await asyncio.to_thread(here.enter_worktree):
            self.move_to_worktree(entered)
            self.send_notice("chosen", "\n".join(entered.notes))

    def _take_next_drive_options(self, starts_run: bool = False, has_prompt: bool = True) -> Options:
        """Options of the next drive. A mode is passed once: the run keeps it and may have changed it since."""
        options = replace(self.options, workspace=self.workspace if self._moved or starts_run else None)
        if not starts_run and not has_prompt and self.status == "waiting":  # modes count from the next prompt
            return replace(options, approval_mode=None, mode=None)
        self.options = replace(self.options, approval_mode=None, mode=None, compress=False)
        if has_prompt:
            self.options = replace(self.options, attach=(), notes=())
        self._mode, self._wished = options.mode or self._mode, options.approval_mode or self._wished
        self._granted = self._granted and not options.approval_mode
        wished = {"approval_mode": self._wished, "edits_granted": self._granted, "mode": self._mode}
        return replace(options, **wished) if starts_run else options

    def _report_unfinished_or_clear_status(self) -> None:
        """Keep the status only if the run waits or is unfinished."""
        if self.ended_by_loop:
            self.send_notice("chosen", _LOOP_HINT)
        if self.status in UNFINISHED and not self._detaching:
            self.send_notice("unfinished", "It stopped midway.", self.run or "")
        elif self.status not in ("waiting", *DRIVEN_ELSEWHERE):
            self.status = ""

    def _report_unsent_notifications(self, sent: "Future[list[str]]") -> None:
        for problem in sent.result():
            self.send_notice("unsent", problem)

    async def _show_run_and_ask_decisions(self, row: RunRow) -> None:
        """Show a run's conversation and its status."""

        async def shown() -> None:
            found = await asyncio.to_thread(read_conversation_events, self.home, row.run)
            recent, before = newest_events(found, self.shown_at_most)
            if before:
                self.send_notice("beginning", "The beginning is left out.", row.run)
            for event in (*recent, *await asyncio.to_thread(read_undos_unseen_by_model, self.home, row.run)):
                self.front.on_event(event)
            self.status = row.status
            await self._refresh_from_run_state()
            self.front.on_drive_ended()
            self._report_unfinished_or_clear_status()
            await self._run_decision_loop()

        await self._run_and_show_errors(shown)

    async def _refresh_from_run_state(self) -> None:
        """Read the run's state: a person, a plan or the model may have changed its mode."""
        if self.run is None or not (state := await asyncio.to_thread(self.client.unmasked_state, self.run)):
            return
        self._updated = (await asyncio.to_thread(self.client.find_run, self.run)).updated
        self._cursor = await asyncio.to_thread(self.client.cursor_at_record_end, self.run)
        mode = str(state.get("approval_mode") or self.approval_mode)
        if self.options.approval_mode is None and mode != self.approval_mode:
            self.approval_mode = mode
            self._wished = mode if mode != "yolo" or self.may_yolo else self._wished
            self._granted = mode == "auto_edit"
        self.mode = str(state.get("mode") or "")
        self.used.context = self.used.context or int(state.get("last_prompt_tokens") or 0)
        self.model = str(state.get("model") or self.model)

    def _handle_event(self, event: Event, /) -> None:
        if isinstance(event, Init):
            self.run = self.run or event.session_id
            self.model = event.model
        elif isinstance(event, Asking) and not event.agent:
            self.answering = event.model
            self.used.record_request(event)
        elif isinstance(event, HandOver) and self.workflow == "plan":
            self.run = event.run
        elif isinstance(event, Finished):
            self.used.add_reply_usage(event)
        if self._detaching and _tells_a_stop(event):
            return
        self.front.on_event(event)


def _tells_a_stop(event: Event) -> bool:
    """Return whether an event says that a drive was stopped, which for one that a worker goes on with isn't so."""
    is_cut_call = isinstance(event, ToolResultEvent) and event.status == "cancelled"
    return is_cut_call or isinstance(event, Cancelled | Result)
