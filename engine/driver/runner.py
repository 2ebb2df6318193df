"""runner: starts a run, or resumes one."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from langgraph.types import StateSnapshot

from interlock.engine.driver.compose import DriveServices, with_discovered_tools
from interlock.engine.driver.decisions import cancels_run, record_decisions
from interlock.engine.driver.drive import (
    Drive,
    check_mode_switch,
    continuation_input,
    first_state,
    graph_input,
    has_due_task,
    hook_channels,
    next_prompt_state,
    postponed_mode_warnings,
    requested_modes,
    workflow_context,
)
from interlock.engine.driver.event_bus import EventBus
from interlock.engine.driver.lease import Lease, acquire_lease
from interlock.engine.driver.notifications import WaitingNotification, announce_outcome
from interlock.engine.driver.outcome import (
    answered_interrupts,
    cancelled_outcome,
    close_interrupted_prompt,
    conclude_drive,
    hand_over_to_workers,
    outcome_of_busy_run,
    queued_outcome,
    unrecorded_outcome,
)
from interlock.engine.driver.run_config import (
    RunConfig,
    apply_input,
    check_agent_trusted,
    prepare_run,
    redact_prompt,
)
from interlock.engine.driver.run_definition import (
    WORKER_DOOR,
    check_drivable,
    check_prompt_allowed,
    check_servable,
    load_workflow_and_config,
    move_run_if_folder_gone,
    needs_model_here,
    options_to_store,
    prepare_submission,
    repository_place,
    with_user_processors,
)
from interlock.engine.driver.stop import Stop, exit_if_blocked
from interlock.engine.optional_rooms import NO_EXPORTER, find_exporter
from interlock.engine.options import Decision, Options, Outcome, Renderer
from interlock.engine.read import ENDED, RunRow, find_run, list_waiting_requests
from interlock.engine.store import Store
from interlock.engine.store.approvals import cancel_run
from interlock.engine.store.integrity import blame_damaged_rows
from interlock.engine.store.runs import (
    Definition,
    NewRun,
    check_run_id,
    clear_run_error,
    innermost_waiting_subtask,
    insert_run,
    merge_into_stored_input,
    new_run_id,
    outermost_waiting_task,
    read_definition,
    set_run_option,
    waiting_parent_task,
    write_seal,
)
from interlock.engine.workflows import find_workflow
from interlock.engine.working_folder import working_in
from interlock.graphs import register_pipeline
from interlock.graphs.node_errors import NodeError
from interlock.graphs.pipeline import Pipeline
from interlock.prompts import hash_prompts
from interlock.state.deps import Stopped, await_despite_cancel
from interlock.state.errors import (
    ENDED_WELL,
    EXIT_CODES,
    STOPPED,
    BusyError,
    RunError,
    StoppedError,
    StoreError,
    UserError,
)
from interlock.state.events import ErrorEvent, Init
from interlock.state.run import WorkflowInput
from interlock.state.text import replace_surrogates
from interlock.state.workflow import WorkflowContext

_NOT_DRIVEN = "Stopped before run {run!r} was driven by this process. Go on with: interlock resume {run}"
_UNSENT = "Your prompt wasn't sent: the run hasn't answered the one before. Send it again when it has."
_OUTSIDE = (
    "The nodes of run {run!r} work in {here!r}, not in its folder {folder!r}: this process drives another run there. "
    "Drive it in a process of its own."
)
_NEXT = "next_asked"
"""The option with the modes that a person chose while a pass was under way: they count from the next prompt."""
T = TypeVar("T")
_First = Callable[[Drive, WorkflowContext], Awaitable[Any]]
"""Returns a drive's first input: the graph's input, a command, or None to resume where it stopped."""


@dataclass(frozen=True)
class ReplaySubstitutes:
    """What a replay substitutes in a drive."""

    services: Callable[[DriveServices], DriveServices] = lambda own: own
    workflow: Callable[[Pipeline], Pipeline] = lambda own: own
    asked: Mapping[str, str] = field(default_factory=dict[str, str])
    """What the recorded prompt was given, as `requested_modes`."""


@dataclass(frozen=True)
class _DriveSetup:
    """What a drive has in common with those that follow it."""

    store: Store
    options: Options
    renderers: Sequence[Renderer]
    stop: Stop
    rewire: ReplaySubstitutes | None = None

    @property
    def for_other_runs(self) -> "_DriveSetup":
        """For runs that a drive goes on with: what was asked of another run doesn't count for them."""
        kept: Any = dict.fromkeys(("workspace", "approval_mode", "mode", "model"))
        return replace(self, options=replace(self.options, **kept, attach=(), notes=(), compress=False))


async def begin_run(
    workflow: str | Pipeline,
    input: Mapping[str, Any] | WorkflowInput,
    options: Options,
    renderers: Sequence[Renderer],
    run_id: str | None,
    stop: Stop,
    follow: bool = True,
) -> Outcome:
    options = prepare_submission(options)
    chosen, source = _resolve_workflow(workflow, options)
    inputs = chosen.validate_input(input)
    chosen.check_guard(options.guard)
    prepared = prepare_run(
        apply_input(replace(options, source=source), inputs), needs_model_here(chosen, options)
    )
    prepared.warnings.extend(chosen.warnings_at_start(inputs, prepared.env))
    chosen.graph_context(options.context)
    check_agent_trusted(inputs, prepared)
    store = Store(options.home).open()
    title = redact_prompt(replace_surrogates(chosen.title(inputs)), prepared)[:200]
    kept = {
        **prepared.redact.redact_json(options_to_store(prepared.options)),
        "context_prompts": hash_prompts("context"),
    }
    name = new_run_id() if run_id is None else check_run_id(run_id)
    root = repository_place(options) or str(prepared.workspace.root)

    if options.schedule:
        from interlock.engine.driver.schedule import store_schedule

        return store_schedule(
            store, options, str(workflow), title, root, kept, prepared.redact.redact_json(dict(input))
        )

    async def start(drive: Drive, context: WorkflowContext) -> Any:
        first = first_state(chosen, inputs, drive, context, prepared)
        new = NewRun(name, chosen.name, root, title, kept, first, options.queue or None)
        insert_run(drive.conn, new, sealed=options.door != WORKER_DOOR)  # a schedule's row defined it
        return graph_input(chosen, first, drive, "startup")

    door = _DriveSetup(store, options, renderers, stop)
    if options.queue:
        return await _store_queued_run(door, chosen, prepared, name, start)
    outcome = await _drive_subtasks(await _drive_in_folder(door, chosen, prepared, name, start), door)
    return await _drive_following_run(outcome, door) if follow else outcome


def _resolve_workflow(workflow: str | Pipeline, options: Options) -> tuple[Pipeline, dict[str, str] | None]:
    if isinstance(workflow, str):
        return find_workflow(workflow, options)
    register_pipeline(workflow)
    return workflow, None


async def resume_run(
    run: str,
    decisions: Sequence[Decision],
    prompt: str | None,
    options: Options,
    renderers: Sequence[Renderer],
    stop: Stop,
    rewire: ReplaySubstitutes | None = None,
    instead: bool = False,
    follow: bool = True,
) -> Outcome:
    """Persist the decisions, then resume: with what they allow, after a crash, or with a further prompt.

    A task that waits for a subtask resumes with that, then continues itself. A prompt comes after the one in progress.
    """
    store = Store(options.home).open()
    door = _DriveSetup(store, options, renderers, stop, rewire)
    row = find_run(store.home, run, options.workspace)
    if (below := innermost_waiting_subtask(store.home, row.run)) != row.run:
        row = find_run(store.home, below)
    if cancels_run(store, row.run, decisions):
        record_decisions(store, row.run, decisions, door=options.door)
        return cancelled_outcome(find_run(store.home, row.run))
    was_cut = row.status == "cancelled" and row.error is not None
    if was_cut and not (prompt or decisions):
        return cancelled_outcome(row)
    check_prompt_allowed(store, row, prompt, options)
    if (row.queue or options.queue) and not prompt and options.door != WORKER_DOOR:
        return hand_over_to_workers(store, row, decisions, options)
    later = prompt if prompt and not instead and row.status not in ENDED else ""
    now = None if later else prompt
    outcome = await _drive_subtasks(
        await _drive_resumed_run(row, door, decisions, now, instead or was_cut, later), door
    )
    if follow and rewire is None:
        outcome = await _drive_following_run(outcome, door)
    if later and outcome.status in ENDED_WELL and not stop.why:
        return await resume_run(outcome.run, [], later, options, renderers, stop, rewire)
    return replace(outcome, warnings=[*outcome.warnings, *([_UNSENT] if later else [])])


async def drive_with_input(
    run: str,
    given: Any,
    at: Mapping[str, Any],
    options: Options,
    renderers: Sequence[Renderer],
    stop: Stop,
) -> Outcome:
    """Drive a run of a LangGraph graph with another input, a `Command`, or None: on from where it stands, or `at`."""

    row, defined, told = check_drivable(find_run(options.home, run), options)
    chosen, prepared = load_workflow_and_config(row, options, defined)
    prepared.warnings.extend(told)

    async def first(drive: Drive, context: WorkflowContext) -> Any:
        _seal_confirmed_definition(drive, row, defined, told)
        _store_context(drive, prepared, options)
        return await continuation_input(chosen, prepared, given, at, drive, context)

    return await _drive_in_folder(
        _DriveSetup(Store(options.home), options, renderers, stop), chosen, prepared, run, first
    )


def _seal_confirmed_definition(drive: Drive, row: RunRow, defined: Definition, told: Sequence[str]) -> None:
    """Count a run as this host's own from now on, which a person at a terminal let go on after they were `told`."""
    if told:
        write_seal(drive.store.home, row.run, defined)


def _store_context(drive: Drive, prepared: RunConfig, options: Options) -> None:
    """Keep a context that was given now: who resumes the run next, through whichever door, goes on with it."""
    if options.context is not None:
        set_run_option(
            drive.conn, drive.lease.run, "context", prepared.redact.redact_json(dict(options.context))
        )


async def _drive_subtasks(outcome: Outcome, door: _DriveSetup) -> Outcome:
    """Drive started subtasks, and the parents of finished ones, in turn; report the end as the topmost task's."""
    home = door.store.home
    while outcome.workflow == "task" and not door.stop.why:
        run, below = outcome.run, innermost_waiting_subtask(home, outcome.run)
        waits = outcome.status == "waiting" and not outcome.pending and below != run
        following = (
            below
            if waits
            else waiting_parent_task(home, run)
            if outcome.status in ("done", "cancelled")
            else None
        )
        if following is None:
            break
        outcome = await _drive_resumed_run(find_run(home, following), door.for_other_runs)
    if outcome.workflow != "task" or (top := outermost_waiting_task(home, outcome.run)) == outcome.run:
        return outcome
    return replace(outcome, run=top, resume_command=f"interlock resume {top}")


async def _drive_following_run(outcome: Outcome, door: _DriveSetup) -> Outcome:
    """Drive the run that carries on an ended one's work, if its pipeline names one; return how that ended."""
    while run := outcome.carried_on_by:
        if why := door.stop.why:
            code, command = EXIT_CODES[why], f"interlock resume {run}"
            return replace(outcome, run=run, status=why, exit_code=code, resume_command=command)
        warnings = outcome.warnings
        outcome = await _drive_resumed_run(find_run(door.store.home, run), door.for_other_runs)
        outcome = replace(outcome, warnings=[*dict.fromkeys([*warnings, *outcome.warnings])])
    return outcome


async def _drive_resumed_run(
    row: RunRow,
    door: _DriveSetup,
    decisions: Sequence[Decision] = (),
    prompt: str | None = None,
    instead: bool = False,
    later: str = "",
) -> Outcome:
    """Resume one run. `later`: a prompt that follows this drive. Raises `UserError` for a prompt that it can't take."""
    store, options = door.store, door.options
    row, defined, told = check_drivable(row, options)
    chosen, prepared = load_workflow_and_config(row, options, defined)
    prepared.warnings.extend(told)
    if (prompt or later) and chosen.follow_up is None:
        raise UserError(f"Run {row.run!r} of {row.workflow!r} takes no prompt. {_no_prompt_hint(row)}")
    redact_prompt(prompt or "", prepared)
    asked = door.rewire.asked if door.rewire else requested_modes(prepared, options.approval_mode)
    move_run_if_folder_gone(store, row, prepared)
    record_decisions(store, row.run, decisions, door=options.door)

    async def following(drive: Drive, context: WorkflowContext) -> Any:
        _seal_confirmed_definition(drive, row, defined, told)
        set_run_option(drive.conn, row.run, "rights", prepared.options.rights or {})
        _store_context(drive, prepared, options)
        snapshot, answers = await drive.resume_input()
        text, head = prompt, dict[str, str]()
        now_defined = read_definition(drive.conn, row.run)
        check_servable(row, now_defined, options)
        before: dict[str, str] = now_defined.options.get(_NEXT) or {}
        if snapshot.tasks and prompt and instead and chosen.follow_up:
            text, head["head"] = close_interrupted_prompt(drive, snapshot, prompt)
        elif snapshot.tasks:
            at_once, later = chosen.split_modes(asked)
            _store_approval_mode(drive, at_once)
            if later:
                prepared.warnings.extend(postponed_mode_warnings(chosen, later, snapshot.values))
                set_run_option(drive.conn, row.run, _NEXT, {**before, **later})
            return answers
        if snapshot.created_at is None:  # killed before its first checkpoint, or only handed over
            first = merge_into_stored_input(drive.conn, row.run, now_defined.input, asked)
            return graph_input(chosen, first, drive, "startup")
        if (more := next_prompt_state(chosen, row, text, context)) is None:
            return None
        del more["approval_mode"]  # an approved plan or the model may have changed it
        check_mode_switch(now := {**before, **asked}, snapshot.values)
        _store_approval_mode(drive, now)
        if before:
            set_run_option(drive.conn, row.run, _NEXT, {})
        return {**more, **head, **now, **hook_channels(drive, "resume")}

    try:
        return await _drive_in_folder(door, chosen, prepared, row.run, following)
    except BusyError as error:
        return outcome_of_busy_run(row, decisions, error)


def _store_approval_mode(drive: Drive, asked: Mapping[str, str]) -> None:
    """Keep an approval mode that was chosen now, also for after the next question."""
    if mode := asked.get("approval_mode"):
        set_run_option(drive.conn, drive.lease.run, "approval_mode", mode)


def _no_prompt_hint(row: RunRow) -> str:
    """What a person can do with a run that takes no prompt."""
    if row.status in ENDED:
        return "It is over; start another."
    if row.status == "waiting":
        return f"Answer what it asks: interlock approvals {row.run}"
    return f"Let it go on without one: interlock resume {row.run}"


async def _drive_in_folder(
    door: _DriveSetup, chosen: Pipeline, prepared: RunConfig, run: str, first: _First
) -> Outcome:
    """Drive the run in its own folder, whoever drives it from where."""
    root = prepared.workspace.root
    with working_in(root) as inside:
        if not inside and prepared.options.source and root.is_dir():
            prepared.warnings.append(_OUTSIDE.format(run=run, folder=str(root), here=str(Path.cwd())))
        return await _drive_with_telemetry(door, chosen, prepared, run, first)


async def _drive_with_telemetry(
    door: _DriveSetup, chosen: Pipeline, prepared: RunConfig, run: str, first: _First
) -> Outcome:
    store, stop, rewire = door.store, door.stop, door.rewire or ReplaySubstitutes()
    chosen = rewire.workflow(with_user_processors(chosen, prepared))
    prepared = await _await_unless_stopped(with_discovered_tools(prepared, store.home), run, stop)
    if not prepared.settings.telemetry.enabled or door.rewire is not None:
        return await _drive_under_lease(door, chosen, prepared, run, first)
    if (exporter := find_exporter()) is None:
        prepared.warnings.append(NO_EXPORTER)
        return await _drive_under_lease(door, chosen, prepared, run, first)
    settings, env, warnings = prepared.settings.telemetry, prepared.env, prepared.warnings
    with exporter.load().follow_drive(settings, env, warnings, store, run) as (env, more):
        told = replace(prepared, env=env)
        return await _drive_under_lease(
            replace(door, renderers=[*door.renderers, *more]), chosen, told, run, first
        )


async def _drive_under_lease(
    door: _DriveSetup, chosen: Pipeline, prepared: RunConfig, run: str, first: _First
) -> Outcome:
    store, stop, rewire = door.store, door.stop, door.rewire or ReplaySubstitutes()
    bus = EventBus(door.renderers, redact=prepared.redact)
    lease = await _acquire_stoppable_lease(store, run, prepared.options.stale_after_s, stop)
    is_told = prepared.settings.general.notify.wanted and door.rewire is None
    before = [request.id for request in list_waiting_requests(store.home, run)] if is_told else ()

    async def driven(lease: Lease, first: _First) -> tuple[Outcome, set[str]]:
        try:
            with blame_damaged_rows(store.path):
                drive = Drive(store, lease, chosen, prepared, bus, stop, rewire.services)
                try:
                    if placed := prepared.options.placed:
                        with drive.conn.transaction(synced=True) as conn:
                            placed(conn)
                    return await _advance_to_outcome(drive, chosen, prepared, first), drive.awaited
                finally:
                    await await_despite_cancel(drive.close())
        finally:
            lease.release()

    outcome, awaited = await driven(lease, first)
    while (
        outcome.status == "waiting"
        and not stop.why
        and not awaited.isdisjoint(answered_interrupts(store, run))
    ):
        try:
            lease = await _acquire_stoppable_lease(store, run, prepared.options.stale_after_s, stop)
        except BusyError:  # whoever decided drives it
            break
        outcome, awaited = await driven(lease, _resume_with_answers)
    if lease.asked == "cancel" and outcome.status in ("waiting", *STOPPED):
        with store.writing() as conn:
            cancel_run(conn, run)
        outcome = cancelled_outcome(find_run(store.home, run), outcome)
    notice = WaitingNotification.of(outcome, prepared, store.home, before) if is_told else None
    return await announce_outcome(outcome, bus, notice)


async def _store_queued_run(
    door: _DriveSetup, chosen: Pipeline, prepared: RunConfig, run: str, first: _First
) -> Outcome:
    """Store a new run, and the job that lets a worker drive it, in one transaction."""
    from interlock.engine.store.queue import put_job  # its packages come with an extra

    bus = EventBus(door.renderers, redact=prepared.redact)
    lease = await _acquire_stoppable_lease(door.store, run, prepared.options.stale_after_s, door.stop)
    try:
        with blame_damaged_rows(door.store.path):
            drive = Drive(door.store, lease, chosen, prepared, bus, door.stop)
            try:
                with drive.conn.transaction(synced=True) as conn:
                    await first(drive, workflow_context(drive, prepared))
                    put_job(conn, run, door.options.queue)
            finally:
                await drive.close()
    finally:
        lease.release()
        await bus.close()
    return queued_outcome(run, chosen.name, prepared.warnings)


async def _resume_with_answers(drive: Drive, _context: WorkflowContext) -> Any:
    _, answers = await drive.resume_input()
    return answers


async def _acquire_stoppable_lease(store: Store, run: str, stale_after_s: float, stop: Stop) -> Lease:
    loop = asyncio.get_running_loop()

    def lost() -> None:  # called from the heartbeat thread
        loop.call_soon_threadsafe(stop, "lost")

    def stopped() -> None:
        loop.call_soon_threadsafe(stop)
        exit_if_blocked(run)

    work = acquire_lease(store, run, stale_after_s=stale_after_s, on_lost=lost, on_stop=stopped)
    return await _await_unless_stopped(work, run, stop)


async def _await_unless_stopped(work: Coroutine[Any, Any, T], run: str, stop: Stop) -> T:
    try:
        with stop.token.guarded():
            return await work
    except Stopped as stopped:
        raise StoppedError(_NOT_DRIVEN.format(run=run)) from stopped


async def _advance_to_outcome(drive: Drive, chosen: Pipeline, prepared: RunConfig, first: _First) -> Outcome:
    run, context = drive.lease.run, workflow_context(drive, prepared)
    begun = await first(drive, context)  # before its first event: whoever hears that finds the run's row
    drive.bus(Init(session_id=run, model=prepared.model, workflow=chosen.name))
    for warning in prepared.warnings:
        drive.bus(ErrorEvent(severity="warning", message=warning))
    error: Exception | None = None
    snapshot: StateSnapshot | None = None
    try:
        if begun is not None or await has_due_task(drive):
            clear_run_error(drive.conn, run)
            snapshot = await _advance_shielded(drive, drive.advance(begun, prepared.limits.timeout_s))
    except Exception as problem:
        error = problem  # becomes the outcome: work so far is kept, and the run can be resumed
    try:
        if snapshot is None:
            snapshot, _ = await drive.resume_input()
        with blame_damaged_rows(drive.store.path):
            try:
                return conclude_drive(drive, chosen, snapshot, context, error, prepared.warnings)
            except RunError as misfit:  # the last state doesn't fit the workflow's declared output
                return conclude_drive(drive, chosen, snapshot, context, misfit, prepared.warnings)
    except NodeError as refused:
        return conclude_drive(drive, chosen, None, context, error or refused, prepared.warnings)
    except StoreError as broken:
        return unrecorded_outcome(run, chosen, error if isinstance(error, StoreError) else broken, prepared)


async def _advance_shielded(drive: Drive, advance: Coroutine[Any, Any, StateSnapshot]) -> StateSnapshot:
    """Run in a separate task: cancelling the caller's would interrupt LangGraph in the middle of a write."""
    return await await_despite_cancel(advance, cancelled=drive.stop)
