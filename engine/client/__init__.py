"""client: everything that a front end does with runs: start, decide, stop, look, follow, travel.

A front end imports nothing else of the engine. It turns events, views and words (`requests.py`) into something for its
medium, and says who is asked (`Decider`); what follows a drive happens here. Nothing heavy is imported before a run is
driven, and a front end that only looks needs no more than sqlite3.
"""

import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interlock import engine
from interlock.engine.client.views import Views, load_folder_settings
from interlock.engine.driver.decision_loop import Decider, run_decision_loop, run_without_event_loop
from interlock.engine.optional_rooms import NO_EXPORTER, find_telemetry_exporter
from interlock.engine.options import (
    LISTING,
    WORKFLOWS_FOLDER,
    WORKFLOWS_GROUP,
    Decision,
    Options,
    Outcome,
    Pending,
    Renderer,
)
from interlock.engine.read import (
    ENDED,
    STATUSES,
    TALKING,
    Request,
    RunRow,
    Step,
    count_consecutive_root_nodes,
)
from interlock.engine.read.calls import Agent, Call
from interlock.engine.store import Store, open_reader, resolve_state_directory
from interlock.engine.store import runs as rows
from interlock.engine.store.diagnosis import explain_store_errors_and_damage
from interlock.engine.store.runs import SessionState
from interlock.engine.store.workspaces import copy_unreported_undo_notes_to_fork
from interlock.engine.user_code import FORBIDDEN, CodeForbiddenError
from interlock.graphs import PIPELINES

if TYPE_CHECKING:
    from interlock.engine.client.file_changes import Rewind
    from interlock.engine.client.following import FollowedEvent, LiveDriveRegistry
    from interlock.engine.driver.stop import Stop
    from interlock.engine.graph_files import LangGraphApp
    from interlock.engine.run_files import FileChange
    from interlock.engine.travel.fork import Forked
    from interlock.engine.travel.model_fork import ModelForkResult
    from interlock.engine.travel.replay import ReplayResult
    from interlock.engine.worktrees import EnteredWorktree
    from interlock.state.run import WorkflowInput
    from interlock.state.settings import Settings

__all__ = [
    "ENDED",
    "FORBIDDEN",
    "LISTING",
    "PIPELINES",
    "STATUSES",
    "TALKING",
    "WORKFLOWS_FOLDER",
    "WORKFLOWS_GROUP",
    "Agent",
    "Call",
    "Client",
    "CodeForbiddenError",
    "Decider",
    "Decision",
    "Options",
    "Outcome",
    "Pending",
    "Renderer",
    "Request",
    "RunRow",
    "SessionState",
    "Step",
    "count_consecutive_root_nodes",
    "flush_telemetry_and_list_problems",
    "load_folder_settings",
    "make_stop",
    "resolve_state_directory",
    "telemetry_problem",
]


def flush_telemetry_and_list_problems() -> list[str]:
    """At the end of a process that drove runs: wait a moment for telemetry's collector; a line if it took nothing."""
    exporter = find_telemetry_exporter()
    return exporter.load().flush_at_exit() if exporter and exporter.module in sys.modules else []


def telemetry_problem(settings: "Settings") -> str:
    """Why telemetry can't work although settings ask for it; empty: it can."""
    exporter = find_telemetry_exporter()
    return exporter.load().configuration_problem(settings.telemetry) if exporter else NO_EXPORTER


class Client(Views):
    """Runs, for one front end. `options` are those of each drive; a run that goes on keeps its own."""

    def __init__(self, options: Options, drives: "LiveDriveRegistry | None" = None) -> None:
        """`drives`: those of another client of the same front end, which are followed and stopped as its own."""
        super().__init__(options)
        self._drives = drives

    @classmethod
    def for_this_user(cls) -> "Client":
        """For looking at this user's runs, and travelling in them."""
        return cls(Options(home=resolve_state_directory()))

    @cached_property
    def read_only_reason(self) -> str:
        """Why this user may change nothing in the store; empty: they may. Raises `StoreError`."""
        with open_reader(self.home):  # raises what is wrong with the store
            return Store(self.home).database.read_only_reason()

    @property
    def live_drives(self) -> "LiveDriveRegistry":
        if self._drives is None:
            from interlock.engine.client.following import LiveDriveRegistry

            self._drives = LiveDriveRegistry()
        return self._drives

    def load_trusted_langgraph_app(self) -> "LangGraphApp | None":
        """What the workspace's `langgraph.json` asks of a server; None: nothing, or it isn't trusted."""
        from interlock.engine.graph_files import load_langgraph_app

        root = self.options.workspace or Path.cwd()
        return load_langgraph_app(root) if self.options.trusts(root) else None

    async def start(
        self,
        workflow: str,
        input: "Mapping[str, Any] | WorkflowInput",
        *,
        renderers: Sequence[Renderer] = (),
        decider: Decider | None = None,
        stop: "Stop | None" = None,
        run: str | None = None,
    ) -> Outcome:
        """Start a run and drive it until it is over, or what waits is left for later. Raises `InterlockError`.

        `decider`: who decides what comes up; without one the run parks. `stop` ends it early; without it, signals do.
        `run`: its id, by default a new one.
        """
        begin = partial(engine.run, workflow, input, options=self.options, run_id=run)
        outcome = await self._run_registered_drive(begin, renderers, stop)
        return await self.ask_and_resume(outcome, decider, renderers=renderers, stop=stop)

    async def resume(
        self,
        run: str,
        prompt: str | None = None,
        decisions: Sequence[Decision] = (),
        *,
        renderers: Sequence[Renderer] = (),
        decider: Decider | None = None,
        stop: "Stop | None" = None,
        replace_unfinished: bool = False,
    ) -> Outcome:
        """Resume a run: with decisions, with another prompt, or where it was cut off.

        `replace_unfinished`: the prompt replaces whatever an interrupted run was about to do.
        """
        resume = partial(
            engine.resume,
            run,
            prompt=prompt,
            decisions=decisions,
            options=self.options,
            instead=replace_unfinished,
        )
        outcome = await self._run_registered_drive(resume, renderers, stop)
        return await self.ask_and_resume(outcome, decider, renderers=renderers, stop=stop)

    async def drive_with_input(
        self,
        run: str,
        graph_input: Any,
        from_checkpoint: Mapping[str, Any],
        *,
        renderers: Sequence[Renderer] = (),
    ) -> Outcome:
        """Drive a run of a LangGraph graph with another input, a `Command`, or None: on from where it stands.

        `from_checkpoint`: the checkpoint to go on from instead of the newest, as LangGraph names it.
        """
        from interlock.engine.driver import runner

        drive = partial(runner.drive_with_input, run, graph_input, from_checkpoint, options=self.options)
        return await self._run_registered_drive(drive, renderers, None)

    async def ask_and_resume(
        self,
        outcome: Outcome,
        decider: Decider | None,
        *,
        renderers: Sequence[Renderer] = (),
        stop: "Stop | None" = None,
    ) -> Outcome:
        """Ask about what waits, and go on, for as long as somebody decides."""

        async def resume(run: str, decisions: Sequence[Decision]) -> Outcome:
            drive = partial(
                engine.resume,
                run,
                decisions=decisions,
                options=_options_without_modes_and_attachments(self.options),
            )
            return await self._run_registered_drive(drive, renderers, stop)

        if decider is None or (stop and stop.why):
            return outcome
        return await run_decision_loop(self.home, outcome, decider, resume)

    def start_sync(
        self,
        workflow: str,
        input: "Mapping[str, Any] | WorkflowInput",
        *,
        renderers: Sequence[Renderer] = (),
        decider: Decider | None = None,
        run: str | None = None,
    ) -> Outcome:
        """`start` without an event loop: each drive has its own, and who is asked may block."""
        outcome = engine.run_sync(workflow, input, options=self.options, renderers=renderers, run_id=run)
        return self._ask_and_resume_sync(outcome, decider, renderers)

    def resume_sync(
        self,
        run: str,
        prompt: str | None = None,
        decisions: Sequence[Decision] = (),
        *,
        renderers: Sequence[Renderer] = (),
        decider: Decider | None = None,
    ) -> Outcome:
        """`go_on` without an event loop."""
        outcome = engine.resume_sync(
            run, prompt=prompt, decisions=decisions, options=self.options, renderers=renderers
        )
        return self._ask_and_resume_sync(outcome, decider, renderers)

    def _ask_and_resume_sync(
        self, outcome: Outcome, decider: Decider | None, renderers: Sequence[Renderer]
    ) -> Outcome:
        async def resume(run: str, decisions: Sequence[Decision]) -> Outcome:
            options = _options_without_modes_and_attachments(self.options)
            return engine.resume_sync(run, decisions=decisions, options=options, renderers=renderers)

        return (
            run_without_event_loop(run_decision_loop(self.home, outcome, decider, resume))
            if decider
            else outcome
        )

    async def _run_registered_drive(
        self,
        start_drive: Callable[..., Awaitable[Outcome]],
        renderers: Sequence[Renderer],
        stop: "Stop | None",
    ) -> Outcome:
        """Drive where followers hear it, and `stop` finds it."""
        from interlock.engine.driver.stop import provide_stop

        with provide_stop(stop) as given, self.live_drives.register_drive(given) as live:
            return await start_drive(renderers=[*renderers, live], stop=given)

    def check_run_defined_on_this_host(self, run: str) -> None:
        """Raise `UserError` where go_on would refuse a run because this host didn't define it."""
        from interlock.engine.driver.run_definition import load_drivable_run

        load_drivable_run(self.find_run(self.innermost_waiting_subtask(self.find_run(run).run)), self.options)

    def check_run_folder_trusted(self, run: str) -> None:
        """Raise `UserError` where files of a run aren't to be changed because this host didn't name its folder."""
        from interlock.engine.client.file_changes import check_run_folder_trusted

        check_run_folder_trusted(self.find_run(run), self.options)

    def record_decisions(self, run: str, decisions: Sequence[Decision], decided_by: str = "") -> None:
        """Save decisions without driving: a drive in progress takes them up, else `go_on` does. Raises `UserError`.

        `decided_by`: who decided; empty: this user.
        """
        from interlock.engine.driver.decisions import record_decisions

        record_decisions(
            Store(self.home),
            self.innermost_waiting_subtask(self.find_run(run).run),
            decisions,
            decided_by,
            self.options.door,
        )

    def new_run_id(self) -> str:
        """An id for a run that is started under it."""
        return rows.new_run_id()

    def stop_drives(self, run: str | None = None) -> bool:
        """Stop a run that this process drives, or all of them, cleanly; False: there is none. From any thread."""
        found = [drive for drive in [*self.live_drives.open] if run in (None, drive.run)]
        for drive in found:
            drive.request_stop()
        return bool(found)

    def drain_drives(self) -> bool:
        """Let what the drives of this process have begun end, and nothing more begin; False: there is no drive."""
        found = [*self.live_drives.open]
        for drive in found:
            drive.request_drain()
        return bool(found)

    def follow_events(self, run: str, cursor: str = "") -> "AsyncGenerator[FollowedEvent]":
        """A run's events from its record and then live, whichever process drives it, and each change of its status.

        Goes on after `cursor`, the place that came with an earlier event, without a gap or a double. Never ends of
        itself. Raises `UserError`.
        """
        from interlock.engine.client import following

        return following.follow_events(self.home, self.find_run(run).run, cursor, self.live_drives)

    def explain_store_errors(self) -> AbstractContextManager[None]:
        """Turns an exception of the store or the disk into an error that says what to do."""
        return explain_store_errors_and_damage(self.home / "interlock.db")

    def stop_on_signals(self, stop: Callable[[], None]) -> AbstractContextManager[None]:
        """Calls `stop` at the first Ctrl-C or SIGTERM, for a front end with many drives; a second ends the process."""
        from interlock.engine.driver.stop import stop_on_signals

        return stop_on_signals(stop)

    def check_ready_to_run(self) -> None:
        """Raises what would stop a run before its first request: settings, trust, credentials."""
        from interlock.engine.driver.run_config import prepare_run

        prepare_run(self.options, needs_model=True)

    def find_session_or_run(self, name: str) -> SessionState | None:
        """What a session of an editor shows, its run empty before it has begun; any run is a session by its id."""
        shown = self.list_sessions().get(name)
        row = self.find_exact_run(shown.run if shown else name)
        if row is None:
            return shown and shown._replace(run="")
        return shown or SessionState(row.run, row.workspace, {})

    def create_session(self, workspace: Path) -> str:
        """A new session, which shows a run to be started under the session's id."""
        return rows.create_session(self.home, workspace)

    def update_session(self, session: str, run: str, workspace: Path, chosen: Mapping[str, str]) -> None:
        """Let a session show another run, or keep what was chosen for its next prompt."""
        rows.save_session(self.home, session, run, workspace, chosen)

    def list_sessions(self) -> dict[str, SessionState]:
        """Each session by its id, the newest first."""
        return rows.list_sessions(self.home)

    def remove_run_and_list_kept_files(self, run: str) -> list[str]:
        """Delete a run's rows, and the files only they named. Raises `BusyError` while it is driven.

        Returns a line for each name in its rows that leads out of the state directory: what is there stays.
        """
        from interlock.engine.store.retention import remove_run_and_report_refused_paths

        return remove_run_and_report_refused_paths(self.home, run)

    def plan_rewind(self, run: str, step: int | None) -> "Rewind":
        """What it takes to go back to a step; None: to before the run began. Raises `UserError`."""
        from interlock.engine.client.file_changes import plan_rewind

        return plan_rewind(self.home, self.find_run(run), step)

    def undo_changes(self, run: str, call: str | None = None) -> "list[FileChange]":
        """Take back what a run, or one call, did to the files. Raises `UserError` if somebody changed them since."""
        from interlock.engine.client.file_changes import undo_changes

        return undo_changes(self.home, self.find_run(run), call)

    def find_last_undoable_call_with_number(self, run: str) -> tuple[str, Call]:
        """The newest call whose change is still in place, with its number. Raises `UserError`.

        A call that changed nothing but generated files doesn't count.
        """
        from interlock.engine.client.file_changes import find_last_undoable_call_with_number

        return find_last_undoable_call_with_number(self.home, self.find_run(run))

    def enter_worktree(self, name: str | None = None) -> "EnteredWorktree | None":
        """Make the git worktree that a conversation is to work in, or find it; None: it needs none, or has one.

        `name`: of a worktree that is asked for now, empty for a new one; None: options and settings decide. Raises
        `UserError`.
        """
        from interlock.engine.worktrees import enter_worktree, should_enter_worktree

        options = self.options if name is None else replace(self.options, worktree={"name": name})
        wanted = should_enter_worktree(options, is_conversation=True)
        return enter_worktree(options, self.new_run_id()) if wanted else None

    def adopt_thread(self, workflow: str, url: str, thread: str, options: Options) -> str:
        """Make a run of a LangGraph thread in another database; returns its id. Raises `UserError`."""
        from interlock.engine.travel.adopt import adopt_thread

        return adopt_thread(workflow, url, thread, options)

    def fork_run(
        self, run: str, step: int | None = None, *, workspace: Path | None = None, in_place: bool = False
    ) -> "Forked":
        """A run that shares a run's past up to a root step, by default all of it; the parent never changes.

        It works in `workspace`, in place, or by default in a new folder beside the run's own. In place and without a
        step it leaves the files as they are. Raises `UserError`.
        """
        from interlock.engine.travel.fork import fork_run

        run = self.find_run(run, self.options.workspace).run
        newest = self.checkpoints(run)[-1].step
        made = fork_run(self.home, run, step, workspace=workspace, in_place=in_place)
        if in_place and made.step == newest:
            copy_unreported_undo_notes_to_fork(self.home, run, made.run)
        return made

    def replay_run(
        self, run: str, until_step: int | None = None, swap: str | None = None, *, live: bool = False
    ) -> "ReplayResult":
        """Execute a run's graph again from its record. `swap`: NODE=FILE.py:FUNCTION. Raises `UserError`.

        `live`: the nodes of a LangGraph graph run again, with all their effects (`list_nodes_of_live_replay` names
        them); otherwise what they wrote is applied.
        """
        from interlock.engine.travel.replay import replay_run

        return engine.make_sync(replay_run)(self.home, run, until_step, swap, live=live)

    def list_live_replay_nodes_with_counts(
        self, run: str, until_step: int | None = None
    ) -> list[tuple[str, int]]:
        """The nodes of a LangGraph graph that a live replay runs, as the run took them, with repetitions counted.

        Raises `UserError` for a run of another workflow.
        """
        from interlock.engine.travel.replay import list_nodes_of_live_replay

        return list_nodes_of_live_replay(self.home, run, until_step)

    def fork_with_model(
        self, run: str, model: str, step: int | None = None, renderers: Sequence[Renderer] = ()
    ) -> "ModelForkResult":
        """Go on with another model from a step, by default the first, in a fork. Raises `UserError`."""
        from interlock.engine.travel.model_fork import fork_and_drive_with_model

        return engine.make_sync(fork_and_drive_with_model)(self.home, run, model, step, renderers)

    def cursor_at_record_end(self, run: str) -> str:
        """The place behind everything that a run's record holds now, for `follow`."""
        from interlock.engine.client.record import Cursor

        return str(Cursor().move_past(self.read_conversation_events(run)))


def make_stop() -> "Stop":
    """What stops a drive that it is given to, called in the drive's event loop; `why` says that it was."""
    from interlock.engine.driver.stop import Stop

    return Stop()


def _options_without_modes_and_attachments(options: Options) -> Options:
    """Options for going on with a run after a decision: it keeps its modes, which may have changed since."""
    return replace(options, approval_mode=None, mode=None, attach=(), notes=(), compress=False)
