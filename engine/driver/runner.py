"""runner: starts a run, or resumes one."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from langgraph.types import StateSnapshot

from interlock.engine.driver.compose import DriveServices, discover_and_add_tools
from interlock.engine.driver.decisions import is_run_cancelled_by_decisions, record_decisions
from interlock.engine.driver.drive import (
    Drive,
    DriveInput,
    check_mode_switch,
    next_prompt_state,
    open_drive,
    postponed_mode_warnings,
    prepare_continuation_input,
    requested_modes,
)
from interlock.engine.driver.event_bus import EventBus
from interlock.engine.driver.lease import Lease, acquire_stoppable_lease
from interlock.engine.driver.notifications import WaitingNotification, announce_outcome_and_close_bus
from interlock.engine.driver.outcome import (
    busy_outcome_or_raise,
    cancel_request_outcome,
    close_open_calls_and_merge_prompt,
    conclude_drive,
    read_answered_interrupts,
    store_error_outcome,
)
from interlock.engine.driver.run_config import (
    RunConfig,
    check_agent_trusted,
    merge_input_into_options,
    prepare_run,
    redact_prompt_and_warn,
)
from interlock.engine.driver.run_definition import (
    WORKER_DOOR,
    add_user_processors,
    check_defined_on_this_host,
    check_prompt_allowed,
    load_drivable_run,
    load_workflow_and_config,
    options_to_store,
    prepare_repository_options,
    repository_workspace_placeholder,
    update_run_folder_if_gone,
)
from interlock.engine.driver.stop import Stop, await_unless_stopped
from interlock.engine.optional_rooms import NO_EXPORTER, find_telemetry_exporter
from interlock.engine.options import Decision, Options, Outcome, Renderer
from interlock.engine.read import ENDED, TALKING, RunRow, find_run, list_waiting_requests
from interlock.engine.read.shared_folders import other_runs_in_folder_lines
from interlock.engine.store import Store
from interlock.engine.store.approvals import cancel_run_family
from interlock.engine.store.diagnosis import explain_store_errors_and_damage
from interlock.engine.store.runs import (
    NewRun,
    RunDefinition,
    check_run_id,
    clear_run_error,
    find_innermost_waiting_subtask,
    find_outermost_waiting_task,
    find_waiting_parent_task,
    insert_run,
    new_run_id,
    read_definition,
    set_run_option,
    update_known_input_fields,
    write_seal,
)
from interlock.engine.workflows import find_workflow
from interlock.engine.working_folder import use_working_folder
from interlock.engine.worktrees import EnteredWorktree, enter_worktree, should_enter_worktree
from interlock.graphs import register_pipeline
from interlock.graphs.foreign import NodeError
from interlock.graphs.pipeline import Pipeline
from interlock.prompts import hash_prompts
from interlock.state.deps import await_despite_cancel
from interlock.state.errors import (
    ENDED_WELL,
    EXIT_CODES,
    STOPPED,
    BusyError,
    InterlockError,
    RunError,
    StoppedError,
    StoreError,
    UserError,
)
from interlock.state.events import ErrorEvent, Init
from interlock.state.run import WorkflowInput
from interlock.state.text import replace_surrogates

_UNSENT = "Your prompt wasn't sent: the run hasn't answered the one before. Send it again when it has."
_OUTSIDE = (
    "The nodes of run {run!r} work in {here!r}, not in its folder {folder!r}: this process drives another run there. "
    "Drive it in a process of its own."
)
_NEXT = "next_asked"
"""The option with the modes that a person chose while a pass was under way: they count from the next prompt."""


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
    substitutes: ReplaySubstitutes | None = None

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
    drive_successors: bool = True,
) -> Outcome:
    options = prepare_repository_options(options)
    name = new_run_id() if run_id is None else check_run_id(run_id)
    is_talking = (workflow if isinstance(workflow, str) else workflow.name) in TALKING
    entered = None
    if should_enter_worktree(options, is_talking):
        entered = await _enter_worktree_unless_stopped(options, name, stop)
        options = entered.options
    try:
        return await _begin_run_in_folder(
            workflow,
            input,
            options,
            renderers,
            name,
            stop,
            drive_successors,
            entered.made.notes if entered else (),
        )
    except InterlockError:
        if entered:
            await asyncio.to_thread(entered.remove_if_unused)
        raise


async def _enter_worktree_unless_stopped(options: Options, name: str, stop: Stop) -> EnteredWorktree:
    """Make the worktree of a run. Raises `StoppedError` if `stop` was called meanwhile; then none is left."""
    try:
        entered = await asyncio.to_thread(enter_worktree, options, name)
    except UserError as error:  # Ctrl-C reaches git, too
        if not stop.why:
            raise
        raise StoppedError(
            "Stopped while git made the worktree. To see what is left of it: interlock worktrees"
        ) from error
    if stop.why:
        await asyncio.to_thread(entered.remove_if_unused)
        raise StoppedError("Stopped before the run began.")
    return entered


async def _begin_run_in_folder(
    workflow: str | Pipeline,
    input: Mapping[str, Any] | WorkflowInput,
    options: Options,
    renderers: Sequence[Renderer],
    name: str,
    stop: Stop,
    drive_successors: bool,
    notes: Sequence[str],
) -> Outcome:
    """Begin a run, and drive it unless workers do. `notes`: what a person is told as it begins."""
    if isinstance(workflow, str):
        chosen, source = find_workflow(workflow, options)
    else:
        chosen, source = workflow, None
        register_pipeline(workflow)
    inputs = chosen.validate_input(input)
    chosen.check_guard_flag_supported(options.guard)
    needs_model = chosen.needs_model and not options.repository  # there the worker's key is used
    prepared = prepare_run(merge_input_into_options(replace(options, source=source), inputs), needs_model)
    prepared.warnings.extend([*notes, *chosen.warnings_at_start(inputs, prepared.env)])
    chosen.validate_context(options.context)
    check_agent_trusted(inputs, prepared)
    store = Store(options.home).create_or_migrate()
    title = redact_prompt_and_warn(replace_surrogates(chosen.run_title(inputs)), prepared)[:200]
    kept = {
        **prepared.redact.redact_json(options_to_store(prepared.options)),
        "context_prompts": hash_prompts("context"),
    }
    root = repository_workspace_placeholder(options) or str(prepared.workspace.root)

    if options.schedule:
        from interlock.engine.driver.submission import store_schedule

        return store_schedule(
            store, options, str(workflow), title, root, kept, prepared.redact.redact_json(dict(input))
        )

    async def start(drive: Drive) -> Any:
        first = drive.build_first_state(inputs)
        new = NewRun(name, chosen.name, root, title, kept, first, options.queue or None)
        insert_run(drive.conn, new, sealed=options.door != WORKER_DOOR)  # a schedule's row defined it
        return drive.build_graph_input(first, "startup")

    door = _DriveSetup(store, options, renderers, stop)
    if options.queue:
        from interlock.engine.driver.submission import store_queued_run

        lease = await acquire_stoppable_lease(store, name, prepared.options.stale_after_s, stop)
        return await store_queued_run(store, lease, chosen, prepared, renderers, stop, start)
    outcome = await _drive_subtasks_and_parents(
        await _drive_in_folder(door, chosen, prepared, name, start), door
    )
    return await _drive_successor_runs(outcome, door) if drive_successors else outcome


async def resume_run(
    run: str,
    decisions: Sequence[Decision],
    prompt: str | None,
    options: Options,
    renderers: Sequence[Renderer],
    stop: Stop,
    substitutes: ReplaySubstitutes | None = None,
    replace_unfinished: bool = False,
    drive_successors: bool = True,
) -> Outcome:
    """Persist the decisions, then resume: with what they allow, after a crash, or with a further prompt.

    A task that waits for a subtask resumes with that, then continues itself. A prompt comes after the one in progress.
    """
    store = Store(options.home).create_or_migrate()
    door = _DriveSetup(store, options, renderers, stop, substitutes)
    row = find_run(store.home, run, options.workspace)
    if (below := find_innermost_waiting_subtask(store.home, row.run)) != row.run:
        row = find_run(store.home, below)
    if is_run_cancelled_by_decisions(store, row.run, decisions):
        record_decisions(store, row.run, decisions, door=options.door)
        return cancel_request_outcome(find_run(store.home, row.run))
    was_cut = row.status == "cancelled" and row.error is not None
    if was_cut and not (prompt or decisions):
        return cancel_request_outcome(row)
    check_prompt_allowed(store, row, prompt, options)
    if (row.queue or options.queue) and not prompt and options.door != WORKER_DOOR:
        from interlock.engine.driver.submission import hand_over_to_workers

        return hand_over_to_workers(store, row, decisions, options)
    later = prompt if prompt and not replace_unfinished and row.status not in ENDED else ""
    now = None if later else prompt
    outcome = await _drive_subtasks_and_parents(
        await _drive_resumed_run(row, door, decisions, now, replace_unfinished or was_cut, later), door
    )
    if drive_successors and substitutes is None:
        outcome = await _drive_successor_runs(outcome, door)
    if later and outcome.status in ENDED_WELL and not stop.why:
        return await resume_run(outcome.run, [], later, options, renderers, stop, substitutes)
    return replace(outcome, warnings=[*outcome.warnings, *([_UNSENT] if later else [])])


async def drive_with_input(
    run: str,
    graph_input: Any,
    from_checkpoint: Mapping[str, Any],
    options: Options,
    renderers: Sequence[Renderer],
    stop: Stop,
) -> Outcome:
    """Drive a run of a LangGraph graph with another input, a `Command`, or None: on from where it stands.

    `from_checkpoint`: from there instead.
    """
    row, defined, told = load_drivable_run(find_run(options.home, run), options)
    chosen, prepared = load_workflow_and_config(row, options, defined)
    prepared.warnings.extend(told)

    async def first(drive: Drive) -> Any:
        _store_seal_and_context(drive, row, defined if told else None, options)
        return await prepare_continuation_input(drive, graph_input, from_checkpoint)

    return await _drive_in_folder(
        _DriveSetup(Store(options.home), options, renderers, stop), chosen, prepared, run, first
    )


def _store_seal_and_context(
    drive: Drive, row: RunRow, defined: RunDefinition | None, options: Options
) -> None:
    """Keep a context that was given now: who resumes the run next, through whichever door, goes on with it.

    `defined`: a definition that a person at a terminal let go on, told of it: it counts as this host's from now on.
    """
    if defined is not None:
        write_seal(drive.store.home, row.run, defined)
    if options.context is not None:
        context = drive.prepared.redact.redact_json(dict(options.context))
        set_run_option(drive.conn, row.run, "context", context)


async def _drive_subtasks_and_parents(outcome: Outcome, setup: _DriveSetup) -> Outcome:
    """Drive started subtasks, and the parents of finished ones, in turn; report the end as the topmost task's."""
    home = setup.store.home
    while outcome.workflow == "task" and not setup.stop.why:
        run, below = outcome.run, find_innermost_waiting_subtask(home, outcome.run)
        waits = outcome.status == "waiting" and not outcome.pending and below != run
        following = (
            below
            if waits
            else find_waiting_parent_task(home, run)
            if outcome.status in ("done", "cancelled")
            else None
        )
        if following is None:
            break
        outcome = await _drive_resumed_run(find_run(home, following), setup.for_other_runs)
    if outcome.workflow != "task" or (top := find_outermost_waiting_task(home, outcome.run)) == outcome.run:
        return outcome
    return replace(outcome, run=top, resume_command=f"interlock resume {top}")


async def _drive_successor_runs(outcome: Outcome, setup: _DriveSetup) -> Outcome:
    """Drive the run that carries on an ended one's work, if its pipeline names one; return how that ended."""
    while run := outcome.carried_on_by:
        if why := setup.stop.why:
            code, command = EXIT_CODES[why], f"interlock resume {run}"
            return replace(outcome, run=run, status=why, exit_code=code, resume_command=command)
        warnings = outcome.warnings
        outcome = await _drive_resumed_run(find_run(setup.store.home, run), setup.for_other_runs)
        outcome = replace(outcome, warnings=[*dict.fromkeys([*warnings, *outcome.warnings])])
    return outcome


async def _drive_resumed_run(
    row: RunRow,
    setup: _DriveSetup,
    decisions: Sequence[Decision] = (),
    prompt: str | None = None,
    replace_unfinished: bool = False,
    next_prompt: str = "",
) -> Outcome:
    """Resume one run. Raises `UserError` for a prompt that it can't take.

    `next_prompt`: one that follows this drive.
    """
    store, options = setup.store, setup.options
    row, defined, told = load_drivable_run(row, options)
    chosen, prepared = load_workflow_and_config(row, options, defined)
    prepared.warnings.extend(told)
    if (prompt or next_prompt) and chosen.follow_up is None:
        raise UserError(f"Run {row.run!r} of {row.workflow!r} takes no prompt. {_no_prompt_hint(row)}")
    redact_prompt_and_warn(prompt or "", prepared)
    asked = setup.substitutes.asked if setup.substitutes else requested_modes(prepared, options.approval_mode)
    update_run_folder_if_gone(store, row, prepared)
    record_decisions(store, row.run, decisions, door=options.door)

    async def following(drive: Drive) -> Any:
        _store_seal_and_context(drive, row, defined if told else None, options)
        set_run_option(drive.conn, row.run, "rights", prepared.options.rights or {})
        snapshot, answers = await drive.read_snapshot_and_answers()
        text, head = prompt, dict[str, str]()
        now_defined = read_definition(drive.conn, row.run)
        check_defined_on_this_host(row, now_defined, options)
        before: dict[str, str] = now_defined.options.get(_NEXT) or {}
        if snapshot.tasks and prompt and replace_unfinished and chosen.follow_up:
            text, head["head"] = close_open_calls_and_merge_prompt(drive, snapshot, prompt)
        elif snapshot.tasks:
            at_once, later = chosen.split_immediate_modes(asked)
            _store_requested_approval_mode(drive, at_once)
            if later:
                prepared.warnings.extend(postponed_mode_warnings(chosen, later, snapshot.values))
                set_run_option(drive.conn, row.run, _NEXT, {**before, **later})
            return answers
        if snapshot.created_at is None:  # killed before its first checkpoint, or only handed over
            first = update_known_input_fields(drive.conn, row.run, now_defined.input, asked)
            return drive.build_graph_input(first, "startup")
        if (more := next_prompt_state(drive, row, text)) is None:
            return None
        del more["approval_mode"]  # an approved plan or the model may have changed it
        check_mode_switch(now := {**before, **asked}, snapshot.values)
        _store_requested_approval_mode(drive, now)
        if before:
            set_run_option(drive.conn, row.run, _NEXT, {})
        return {**more, **head, **now, **drive.hook_channels("resume")}

    try:
        return await _drive_in_folder(setup, chosen, prepared, row.run, following)
    except BusyError as error:
        return busy_outcome_or_raise(row, decisions, error)


def _store_requested_approval_mode(drive: Drive, requested_modes: Mapping[str, str]) -> None:
    """Keep an approval mode that was chosen now, also for after the next question."""
    if mode := requested_modes.get("approval_mode"):
        set_run_option(drive.conn, drive.lease.run, "approval_mode", mode)


def _no_prompt_hint(row: RunRow) -> str:
    """What a person can do with a run that takes no prompt."""
    if row.status in ENDED:
        return "It is over; start another."
    if row.status == "waiting":
        return f"Answer what it asks: interlock approvals {row.run}"
    return f"Let it go on without one: interlock resume {row.run}"


async def _drive_in_folder(
    setup: _DriveSetup, pipeline: Pipeline, prepared: RunConfig, run: str, make_input: DriveInput
) -> Outcome:
    """Drive the run in its own folder, whoever drives it from where; with telemetry if settings ask for it."""
    root, store, rewire = prepared.workspace.root, setup.store, setup.substitutes or ReplaySubstitutes()
    with ExitStack() as stack:
        if not stack.enter_context(use_working_folder(root)) and prepared.options.source and root.is_dir():
            prepared.warnings.append(_OUTSIDE.format(run=run, folder=str(root), here=str(Path.cwd())))
        pipeline = rewire.workflow(add_user_processors(pipeline, prepared))
        prepared = await await_unless_stopped(discover_and_add_tools(prepared, store.home), run, setup.stop)
        telemetry = prepared.settings.telemetry
        if telemetry.enabled and setup.substitutes is None:
            if exporter := find_telemetry_exporter():
                follow = exporter.load().follow_drive(telemetry, prepared.env, prepared.warnings, store, run)
                env, more = stack.enter_context(follow)
                prepared = replace(prepared, env=env)
                setup = replace(setup, renderers=[*setup.renderers, *more])
            else:
                prepared.warnings.append(NO_EXPORTER)
        return await _drive_under_lease(setup, pipeline, prepared, run, make_input)


async def _drive_under_lease(
    setup: _DriveSetup, pipeline: Pipeline, prepared: RunConfig, run: str, make_input: DriveInput
) -> Outcome:
    """Drive the run, and once more if a decision came while the drive ended; tell how it ended."""
    store, stop, rewire = setup.store, setup.stop, setup.substitutes or ReplaySubstitutes()
    bus = EventBus(setup.renderers, redact=prepared.redact)
    lease = await acquire_stoppable_lease(store, run, prepared.options.stale_after_s, stop)
    is_told = prepared.settings.general.notify.is_enabled and setup.substitutes is None
    before = [request.id for request in list_waiting_requests(store.home, run)] if is_told else ()

    async def driven(lease: Lease, first: DriveInput) -> tuple[Outcome, set[str]]:
        with explain_store_errors_and_damage(store.path):
            async with open_drive(store, lease, pipeline, prepared, bus, stop, rewire.services) as drive:
                if placed := prepared.options.placed:
                    with drive.conn.transaction(synced=True) as conn:
                        placed(conn)
                return await _advance_to_outcome(drive, first), drive.awaited

    outcome, awaited = await driven(lease, make_input)
    while (
        outcome.status == "waiting"
        and not stop.why
        and not awaited.isdisjoint(read_answered_interrupts(store, run))
    ):
        try:
            lease = await acquire_stoppable_lease(store, run, prepared.options.stale_after_s, stop)
        except BusyError:  # whoever decided drives it
            break
        outcome, awaited = await driven(lease, _read_resume_input)
    if lease.stop_request == "cancel" and outcome.status in ("waiting", *STOPPED):
        with store.write_transaction() as conn:
            cancel_run_family(conn, run)
        outcome = cancel_request_outcome(find_run(store.home, run), outcome)
    notice = WaitingNotification.for_new_requests(outcome, prepared, store.home, before) if is_told else None
    return await announce_outcome_and_close_bus(outcome, bus, notice)


async def _advance_to_outcome(drive: Drive, make_input: DriveInput) -> Outcome:
    """Advance the run until nothing is due or a person must decide; an error becomes its outcome."""
    begun = await make_input(drive)  # before its first event: whoever hears that finds the run's row
    drive.bus(Init(session_id=drive.lease.run, model=drive.prepared.model, workflow=drive.pipeline.name))
    for warning in (
        *drive.prepared.warnings,
        *other_runs_in_folder_lines(drive.store, drive.lease.run, drive.prepared.options),
    ):
        drive.bus(ErrorEvent(severity="warning", message=warning))
    error: Exception | None = None
    snapshot: StateSnapshot | None = None
    try:
        if begun is not None or await drive.has_due_task():
            clear_run_error(drive.conn, drive.lease.run)
            # In a task of its own: cancelling the caller's would interrupt LangGraph in the middle of a write.
            snapshot = await await_despite_cancel(drive.advance(begun), on_cancelled=drive.stop)
    except Exception as problem:
        error = problem  # becomes the outcome: work so far is kept, and the run can be resumed
    try:
        if snapshot is None:
            snapshot, _ = await drive.read_snapshot_and_answers()
        with explain_store_errors_and_damage(drive.store.path):
            try:
                return conclude_drive(drive, snapshot, error)
            except RunError as misfit:  # the last state doesn't fit the workflow's declared output
                return conclude_drive(drive, snapshot, misfit)
    except NodeError as refused:
        return conclude_drive(drive, None, error or refused)
    except StoreError as broken:
        return store_error_outcome(drive, error if isinstance(error, StoreError) else broken)


async def _read_resume_input(drive: Drive) -> Any:
    _, answers = await drive.read_snapshot_and_answers()
    return answers
