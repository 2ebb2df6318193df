"""drive: one process advances one run, until it is done, parked, stopped or lost; and the state that a pass through its
graph begins with: its first, another prompt's, a retry's."""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import ExitStack, asynccontextmanager
from itertools import chain
from typing import Any, cast

from langgraph.errors import GraphDrained
from langgraph.types import Command, Interrupt, PregelTask, StateSnapshot

from interlock.engine.driver.compose import DriveServices, compose_services
from interlock.engine.driver.event_bus import EventBus
from interlock.engine.driver.lease import Lease
from interlock.engine.driver.run_config import RunConfig
from interlock.engine.driver.stop import Stop, allow_exit_while_blocked, schedule_exit_if_overdue
from interlock.engine.read import RunRow
from interlock.engine.store import Store
from interlock.engine.store.approvals import withdraw_open_requests
from interlock.engine.store.connection import Connection
from interlock.engine.store.diagnosis import explain_store_errors_and_damage
from interlock.engine.store.foreign_saver import make_saver
from interlock.engine.store.leases import fence_commits, lost_run_error
from interlock.engine.store.model_calls import read_reply_usage, sum_usage_with_subtasks
from interlock.engine.store.saver import Saver, advance_checkpoint_id_clock
from interlock.engine.store.steps import StepLog
from interlock.graphs.foreign_requests import to_json_value
from interlock.graphs.graph import Compiled
from interlock.graphs.pipeline import Pipeline
from interlock.graphs.stored_channels import find_missing_pending_nodes
from interlock.nodes.effects import wait_for_running_effects
from interlock.prompts import load_prompt
from interlock.services.context.references import build_attachment_parts
from interlock.services.models.names import disable_tracing
from interlock.state.charts import ApprovalModeChart, approval_mode_state, next_state
from interlock.state.deps import RunInfo, await_despite_cancel
from interlock.state.errors import RunError, UserError
from interlock.state.events import ErrorEvent
from interlock.state.messages import Message, TextPart
from interlock.state.run import WorkflowInput, is_hooked
from interlock.state.text import replace_surrogates, to_json_text
from interlock.state.workflow import WorkflowContext

DriveInput = Callable[["Drive"], Awaitable[Any]]
"""Returns a drive's first input: the graph's input, a command, or None to resume where it stopped."""
RECURSION_LIMIT = 1_000_000
"""LangGraph's own bound on supersteps; ours is on turns (`state/run.py`)."""


class Drive:
    """The connections and the compiled graph of one drive."""

    def __init__(
        self,
        store: Store,
        lease: Lease,
        pipeline: Pipeline,
        prepared: RunConfig,
        bus: EventBus,
        stop: Stop,
        substitute_services: Callable[[DriveServices], DriveServices] = lambda own: own,
    ) -> None:
        """`substitute_services`: what takes the place of its services in a replay."""
        self.store, self.lease = store, lease
        self.pipeline, self.prepared = pipeline, prepared
        self.bus, self.stop = bus, stop
        self.refusal = ("", "")
        """Kind of error and message for the user, about a used-up budget."""
        self.awaited = set[str]()
        """Interrupts that waited when it last looked for answers."""
        self.halted_breakpoints = set[str]()
        """Breakpoints of a foreign graph that nobody has let it pass yet."""
        self.reruns_waiting_nodes = False
        """Whether it goes on whatever waits, as LangGraph does with no input: nodes that wait run again, and ask."""
        self._has_warned_of_secret = False
        self._loop = asyncio.get_running_loop()
        self.conn = store.connect_for_driver()
        with ExitStack() as stack:
            stack.callback(self.conn.close)
            fence_commits(self.conn, lease)
            steps = StepLog(prepared.redact, self.conn, lease.run)
            advance_checkpoint_id_clock(self.conn, lease.run)
            options = prepared.options
            info = RunInfo(
                lease.run,
                pipeline.name,
                prepared.workspace.root,
                interactive=options.interactive,
                approval_mode=prepared.chosen_mode,
                guard=options.guard,
                brief=prepared.uses_small_prompt,
                continues=pipeline.can_continue_after_end,
            )
            disable_tracing()  # the environment could make LangGraph send its runs to a tracing service
            stop.token.loop = self._loop
            services = compose_services(
                prepared,
                info,
                store,
                self.conn,
                epoch=lease.epoch,
                token=stop.token,
                steps=steps,
                emit=bus,
                on_refused=self.stop_for_budget,
            )
            self.services = substitute_services(services)
            self.context = _workflow_context(self.services, self.conn, lease.run, prepared)
            """For the workflow's `enter` and `leave`."""
            self._saver = make_saver(pipeline, self.conn, steps, self.services.deps.approvals, store.path)
            self._saver.on_stored_value = self._warn_once_about_secret
            self._saver.use_state_serde_for_effects(self.services.deps.effects)
            self._graph = pipeline.build_uncompiled_graph(prepared.settings.agents.max_depth)
            self.app: Compiled = self._graph.compile(self._saver)
            thread = {**(options.context or {}), "thread_id": lease.run}
            self.config: Any = {"configurable": thread, "recursion_limit": RECURSION_LIMIT}
            self._stack = stack.pop_all()

    def _warn_once_about_secret(self, holder: str, value: Any) -> None:
        """Warn of the first secret that a graph stores: state is kept as its nodes wrote it, as they need it again.

        `holder` begins the warning.
        """
        redact = self.prepared.redact
        if self._has_warned_of_secret or not redact.enabled:
            return
        if spans := redact.find_secrets(to_json_text(to_json_value(value))):
            self._has_warned_of_secret = True
            line = (
                f"{holder} holds a secret ({spans[0].name}). It is masked wherever it is shown or exported, but the "
                "store keeps state unmasked. Keep the name of a variable in the state instead."
            )
            self.prepared.warnings.append(line)
            self.bus(ErrorEvent(severity="warning", message=line))

    def stop_for_budget(self, why: str, kind: str) -> None:
        """Stop because a budget is used up."""
        self.refusal = self.refusal if self.refusal[0] else (kind, why)
        self.stop.request_drain("budget")

    async def advance(self, graph_input: Any) -> StateSnapshot:
        """Drive until nothing is due or a person must decide; return the last snapshot, including nested ones."""
        timeout_s = self.prepared.limits.timeout_s
        blocks = self.pipeline.runs_user_code
        end = (
            allow_exit_while_blocked(self.lease.run, timeout_s, self.lease.record_forced_exit_reason)
            if blocks
            else None
        )
        self._saver.record_graph_code(self.lease.run, self.app)
        self.stop.token.overdue = schedule_exit_if_overdue
        timer = self._loop.call_later(timeout_s, self.stop, "timeout") if timeout_s else None
        try:
            with explain_store_errors_and_damage(self.store.path):
                while True:
                    await self._advance_once(graph_input)
                    snapshot = await self._read_snapshot()
                    resume = self._collect_answers_and_ask_breakpoints(snapshot)
                    if self.stop.why == "lost":
                        raise lost_run_error(self.conn, self.lease)
                    if self.stop.why or not resume:
                        return snapshot
                    graph_input = Command(resume=resume)
        finally:
            if timer:
                timer.cancel()
            if end and not self.stop.why:
                end.cancel()

    async def read_snapshot_and_answers(self) -> tuple[StateSnapshot, Any]:
        """The snapshot, and the input to resume with: new answers, or None.

        Raises `RunError` if today's graphs can't resume from it.
        """
        snapshot = await self._read_snapshot()
        with explain_store_errors_and_damage(self.store.path):
            check_resumable(self.lease.run, self._graph, self.app, snapshot, self._saver)
            answers = self._collect_answers_and_ask_breakpoints(snapshot)
        return snapshot, Command(resume=answers) if answers else None

    async def _read_snapshot(self) -> StateSnapshot:
        """Raises `NodeError` where a reducer or a type of somebody's graph refuses what its nodes wrote."""
        with self.pipeline.wrap_read_errors(), explain_store_errors_and_damage(self.store.path):
            return await self.app.aget_state(self.config, subgraphs=True)

    async def _advance_once(self, graph_input: Any) -> None:
        try:
            await self.pipeline.advance(
                self.app, graph_input, self.config, self.services.deps, self.stop.control
            )
        except GraphDrained:
            return
        finally:
            self.config["configurable"].pop("checkpoint_id", None)  # it began there, and is past it
            self.conn.flush(drop_on_failure=True)

    def _collect_answers_and_ask_breakpoints(self, snapshot: StateSnapshot) -> dict[str, Any]:
        """Return interrupt id → what it is resumed with, for pending ones that can go on."""
        run, waiting = self.lease.run, {item.id: item.value for item in pending_interrupts(snapshot)}
        self.halted_breakpoints = self._saver.ask_and_list_open_breakpoints(run, self.app, snapshot)
        self.awaited = {*waiting, *self.halted_breakpoints}
        return {} if self.halted_breakpoints else self._saver.read_resume_values_by_interrupt(run, waiting)

    def mark_run_done(self) -> None:
        """Note that the run is done."""
        self._saver.mark_run_done_if_needed(self.lease.run)

    def build_first_state(self, input: WorkflowInput) -> dict[str, Any]:
        """Return the state that the run's row holds, JSON-like."""

        def channels() -> dict[str, str]:
            prepared = self.prepared
            wanted = prepared.options.protocol or prepared.settings.tools.protocol
            own = {"mode": "", "chosen_mode": prepared.chosen_mode, **requested_modes(prepared)}
            protocol = prepared.resolve_protocol(wanted)
            return {**own, "protocol": protocol, **self.hook_channels("startup")}

        return self.pipeline.first_state(input, self.context, channels)

    def build_graph_input(self, first_state: dict[str, Any], session_reason: str) -> Any:
        """Return what the graph begins with. `first_state`: that of the run's row; `session_reason`: why it begins."""
        return self.pipeline.graph_input(first_state, self.hook_channels(session_reason))

    def hook_channels(self, session_reason: str) -> dict[str, str]:
        """Channels set with each prompt, even if no hooks are configured: the previous prompt's may be stale."""
        configured = self.services.deps.hooks.hooked_events
        begins = is_hooked({"hooked": configured}, "SessionStart")
        return {"hooked": configured, **({"session": session_reason} if begins else {})}

    async def has_due_task(self) -> bool:
        """Whether any task can proceed, instead of all being done or waiting."""
        snapshot, _ = await self.read_snapshot_and_answers()
        if snapshot.created_at is None:
            return True  # it was given nothing: the graph says so
        if self.halted_breakpoints or self.reruns_waiting_nodes:
            return not self.halted_breakpoints
        return bool(snapshot.tasks) and not _is_only_waiting(snapshot)

    async def close(self) -> None:
        """End what the drive started, then close its connections."""
        try:
            with self.stop.token.flag_unstoppable_work():
                while self.stop.token.left:
                    await asyncio.wait([*self.stop.token.left])
                await wait_for_running_effects(self.lease.run)
            await self.services.close()
        finally:
            self._stack.close()


@asynccontextmanager
async def open_drive(
    store: Store,
    lease: Lease,
    pipeline: Pipeline,
    prepared: RunConfig,
    bus: EventBus,
    stop: Stop,
    substitute_services: Callable[[DriveServices], DriveServices] = lambda own: own,
    release_in_thread: bool = False,
) -> AsyncGenerator[Drive]:
    """Open a drive for the block, as `Drive`; then end what it started, and give the run back, whatever happened.

    `release_in_thread`: for a server's loop, which mustn't wait for the database. A process that drives one run gives
    it back at once: its threads may all be stuck in somebody's code.
    """
    try:
        drive = Drive(store, lease, pipeline, prepared, bus, stop, substitute_services)
        try:
            yield drive
        finally:
            await await_despite_cancel(drive.close())
    finally:
        if release_in_thread:
            await await_despite_cancel(asyncio.to_thread(lease.release))
        else:
            lease.release()


def pending_interrupts(snapshot: StateSnapshot) -> list[Interrupt]:
    """Interrupts of the innermost tasks only: an outer task repeats those of its subgraphs, answered ones included."""
    each = (
        pending_interrupts(inner) if (inner := _inner_snapshot(task)) else task.interrupts
        for task in snapshot.tasks
    )
    return [*chain.from_iterable(each)]


def _inner_snapshot(task: PregelTask) -> StateSnapshot | None:
    """The graph inside a task; None: there is none, or it is over, and what waits is the task itself, or another."""
    return task.state if isinstance(task.state, StateSnapshot) and task.state.tasks else None


def _is_only_waiting(snapshot: StateSnapshot) -> bool:
    """Some task waits for a person or a subtask, and every other one waits too or is done.

    If none waits, as in a nested graph that was killed with nothing but its input, the next step is due.
    """
    waits = [
        _is_only_waiting(inner) if (inner := _inner_snapshot(task)) else bool(task.interrupts)
        for task in snapshot.tasks
    ]
    return any(waits) and all(wait or task.result for wait, task in zip(waits, snapshot.tasks, strict=True))


def check_resumable(run: str, graph: Any, app: Any, snapshot: StateSnapshot, saver: Saver) -> None:
    """Raises `RunError` if a pending node is gone, or the graph lacks a stored channel.

    `docs/internals.md#runs-of-an-earlier-version`.

    `graph`: a `Graph`, or one of LangGraph's; `app`: the compiled one (LangGraph doesn't type its channels). Nested
    graphs are checked if they are in progress.
    """
    found = saver.get_tuple(snapshot.config)
    values: dict[str, Any] = found.checkpoint["channel_values"] if found else {}
    if lost := find_missing_pending_nodes(values, app.nodes):
        raise _cannot_resume_error(run, f"it stands before node {lost[0]!r} of {graph.name!r}")
    known = {*app.channels, *graph.retired}
    if lost := saver.find_unknown_state_keys(values, known):
        raise _cannot_resume_error(run, f"its state holds {lost[0]!r} of {graph.name!r}")
    for task in snapshot.tasks:
        inner = graph.subgraphs.get(task.name)
        if inner is not None and isinstance(task.state, StateSnapshot):
            check_resumable(run, inner.graph, inner.compiled, task.state, saver)


def _cannot_resume_error(run: str, obstacle: str) -> RunError:
    return RunError(
        f"Run {run!r} can't be resumed: {obstacle}, which this version doesn't have. Resume it with the version or the "
        f"workflow file that began it, or start another; what it did: interlock show {run}"
    )


def _workflow_context(
    services: DriveServices, conn: Connection, run: str, prepared: RunConfig
) -> WorkflowContext:
    started = time.monotonic()

    def stats() -> dict[str, Any]:
        return {
            **sum_usage_with_subtasks(conn, run),
            "elapsed_ms": round((time.monotonic() - started) * 1000),
        }

    return WorkflowContext(
        services.transcript,
        services.journal,
        prepared.model,
        prepared.approval_mode,
        prepared.limits,
        stats,
        lambda record: read_reply_usage(conn, run, record),
        list(prepared.agents),
        _attachment_messages(prepared),
        prepared.options.compress,
    )


def _attachment_messages(prepared: RunConfig) -> list[Message]:
    """Raises `InputError` naming a file that can't be shown."""
    options = prepared.options
    if not (options.attach or options.notes):
        return []
    heading = TextPart(text=load_prompt("context/attached").render() + "\n", section="attached")
    parts = build_attachment_parts(options.attach, options.notes)
    return [Message(role="user", origin="context", content=(heading, *parts))]


def requested_modes(prepared: RunConfig, approval_mode: str | None = None) -> dict[str, str]:
    """Modes and protocol passed now; otherwise a run keeps its own."""
    protocol = prepared.options.protocol
    asked = {
        "approval_mode": approval_mode,
        "chosen_mode": approval_mode,
        "mode": prepared.options.mode,
        "protocol": protocol and prepared.resolve_protocol(protocol),
    }
    return {name: value for name, value in asked.items() if value}


def check_mode_switch(requested: Mapping[str, str], state: Mapping[str, Any]) -> None:
    """Raise `RunError` if a person may not switch the run's approval mode to the one asked for."""
    mode, before = requested.get("approval_mode"), approval_mode_state(state)
    if mode and before and mode != before.partition(".")[0]:
        next_state(ApprovalModeChart, before, f"use_{mode}")


def postponed_mode_warnings(
    pipeline: Pipeline, requested: Mapping[str, str], state: Mapping[str, Any]
) -> list[str]:
    """Return a line for each mode that differs from the run's and counts only from its next prompt on."""
    goes_on = "counts from the next prompt: this one goes on as it began."
    ends = "doesn't count: this run goes on as it began, and takes no further prompt."
    return [
        f"{name.replace('_', ' ')} {value!r} {goes_on if pipeline.follow_up else ends}"
        for name, value in requested.items()
        if state.get(name) != value and name != "chosen_mode"
    ]


def next_prompt_state(drive: Drive, row: RunRow, prompt: str | None) -> dict[str, Any] | None:
    """State for another prompt or a retry after the graph has ended; None: just report its end again."""
    chosen, context = drive.pipeline, drive.context
    if chosen.follow_up is None or (row.outcome == "done" and not prompt and not context.compress):
        return None
    message = Message(role="user", origin="person", content=replace_surrogates(prompt)) if prompt else None
    more = chosen.follow_up(message, context)
    if context.compress and not more.get("force"):
        raise UserError(f"Run {row.run!r} can't be compressed now: only `main` is, and without a prompt.")
    return more


async def prepare_continuation_input(
    drive: Drive, graph_input: Any, from_checkpoint: Mapping[str, Any]
) -> Any:
    """Return what a graph goes on with: another input, which ends what waits, or a `Command` or None as given.

    `from_checkpoint`: the checkpoint to go on from instead of the newest. Raise `InputError` for another input that
    doesn't fit.
    """
    drive.config["configurable"].update(from_checkpoint)
    drive.reruns_waiting_nodes = graph_input is None
    await drive.read_snapshot_and_answers()
    if graph_input is not None:
        withdraw_open_requests(drive.conn, drive.lease.run)
    if graph_input is None or isinstance(graph_input, Command):
        return cast(Any, graph_input)
    return drive.build_graph_input(
        drive.build_first_state(drive.pipeline.parse_program_input(graph_input)), ""
    )
