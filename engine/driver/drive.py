"""drive: one process advances one run, until it is done, parked, stopped or lost; and the state that a pass through its
graph begins with: its first, another prompt's, a retry's."""

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from itertools import chain
from typing import Any, cast

from langgraph.errors import GraphDrained
from langgraph.types import Command, Interrupt, PregelTask, StateSnapshot

from interlock.engine.driver.compose import DriveConnections, DriveServices, compose_services
from interlock.engine.driver.event_bus import EventBus
from interlock.engine.driver.lease import Lease
from interlock.engine.driver.run_config import RunConfig
from interlock.engine.driver.stop import Stop, exit_when_overdue, watch_blocking_code
from interlock.engine.masking import SecretNotice
from interlock.engine.read import RunRow
from interlock.engine.store import Store
from interlock.engine.store.approvals import withdraw_open_requests
from interlock.engine.store.foreign_saver import saver_for
from interlock.engine.store.integrity import blame_damaged_rows
from interlock.engine.store.leases import fence_commits, lost_run_error
from interlock.engine.store.model_calls import usage_of, usage_stats
from interlock.engine.store.saver import Saver, raise_id_clock
from interlock.engine.store.steps import StepLog
from interlock.graphs.graph import Compiled
from interlock.graphs.pipeline import Pipeline
from interlock.graphs.stored_channels import pending_nodes_missing_from
from interlock.nodes.effects import wait_for_running_effects
from interlock.prompts import load_prompt
from interlock.services.context.references import build_attachments
from interlock.services.models.names import disable_tracing
from interlock.state.charts import ApprovalModeChart, approval_mode_state, next_state
from interlock.state.deps import RunInfo
from interlock.state.errors import RunError, UserError
from interlock.state.events import ErrorEvent
from interlock.state.messages import Message, TextPart
from interlock.state.run import WorkflowInput, is_hooked
from interlock.state.text import replace_surrogates
from interlock.state.workflow import WorkflowContext

RECURSION_LIMIT = 1_000_000
"""LangGraph's own bound on supersteps; ours is on turns (`state/run.py`)."""


def _run_info(prepared: RunConfig, run: str, pipeline: Pipeline) -> RunInfo:
    asks, brief = prepared.options.interactive, prepared.is_brief
    return RunInfo(
        run,
        pipeline.name,
        prepared.workspace.root,
        interactive=asks,
        approval_mode=prepared.chosen_mode,
        guard=prepared.options.guard,
        brief=brief,
        continues=pipeline.can_continue,
    )


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
        rewired: Callable[[DriveServices], DriveServices] = lambda own: own,
    ) -> None:
        """`rewired`: what takes the place of its services in a replay."""
        self.store = store
        self.lease = lease
        self.pipeline = pipeline
        self.bus, self.stop, self.door = bus, stop, prepared.options.door
        self._warnings = prepared.warnings
        self.refusal = ("", "")
        """Kind of error and message for the user, about a used-up budget."""
        self.awaited = set[str]()
        """Interrupts that waited when it last looked for answers."""
        self.halted_breakpoints = set[str]()
        """Breakpoints of a foreign graph that nobody has let it pass yet."""
        self.reruns_waiting_nodes = False
        """Whether it goes on whatever waits, as LangGraph does with no input: nodes that wait run again, and ask."""
        self._loop = asyncio.get_running_loop()
        self.conn = store.connect_driver()
        with ExitStack() as stack:
            stack.callback(self.conn.close)
            fence_commits(self.conn, lease)
            steps = StepLog(prepared.redact, self.conn, lease.run)
            raise_id_clock(self.conn, lease.run)
            options, info = prepared.options, _run_info(prepared, lease.run, pipeline)
            disable_tracing()  # the environment could make LangGraph send its runs to a tracing service
            stop.token.loop = self._loop
            connections = DriveConnections(
                self.conn, stop.token, steps, bus, self.stop_for_budget, lease.epoch
            )
            self.services = rewired(compose_services(prepared, info, store, connections))
            self._saver = saver_for(pipeline, self.conn, steps, self.services.deps.approvals, store.path)
            self._saver.notice = SecretNotice(prepared.redact, self._emit_warning)
            self._saver.stores(self.services.deps.effects)
            self._graph = pipeline.declared_graph(prepared.settings.agents.max_depth)
            self.app: Compiled = self._graph.compile(self._saver)
            thread = {**(options.context or {}), "thread_id": lease.run}
            self.config: Any = {"configurable": thread, "recursion_limit": RECURSION_LIMIT}
            self._stack = stack.pop_all()

    def _emit_warning(self, line: str) -> None:
        self._warnings.append(line)
        self.bus(ErrorEvent(severity="warning", message=line))

    def stop_for_budget(self, why: str, kind: str) -> None:
        """Stop because a budget is used up."""
        self.refusal = self.refusal if self.refusal[0] else (kind, why)
        self.stop.later("budget")

    async def advance(self, graph_input: Any, timeout_s: float | None) -> StateSnapshot:
        """Drive until nothing is due or a person must decide; return the last snapshot, including nested ones."""
        blocks = self.pipeline.runs_user_code
        end = watch_blocking_code(self.lease.run, timeout_s, self.lease.note_end) if blocks else None
        self._saver.begin_drive(self.lease.run, self.app)
        self.stop.token.overdue = exit_when_overdue
        timer = self._loop.call_later(timeout_s, self.stop, "timeout") if timeout_s else None
        try:
            with blame_damaged_rows(self.store.path):
                while True:
                    await self._advance_once(graph_input)
                    snapshot = await self._read_snapshot()
                    resume = self._pending_answers(snapshot)
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

    async def resume_input(self) -> tuple[StateSnapshot, Any]:
        """The snapshot, and the input to resume with: new answers, or None.

        Raises `RunError` if today's graphs can't resume from it.
        """
        snapshot = await self._read_snapshot()
        with blame_damaged_rows(self.store.path):
            check_resumable(self.lease.run, self._graph, self.app, snapshot, self._saver)
            answers = self._pending_answers(snapshot)
        return snapshot, Command(resume=answers) if answers else None

    async def _read_snapshot(self) -> StateSnapshot:
        """Raises `NodeError` where a reducer or a type of somebody's graph refuses what its nodes wrote."""
        with self.pipeline.wrap_read_errors(), blame_damaged_rows(self.store.path):
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
            self.conn.flush(last=True)

    def _pending_answers(self, snapshot: StateSnapshot) -> dict[str, Any]:
        """Return interrupt id → what it is resumed with, for pending ones that can go on."""
        run, waiting = self.lease.run, {item.id: item.value for item in pending_interrupts(snapshot)}
        self.halted_breakpoints = self._saver.halted_at(run, self.app, snapshot)
        self.awaited = {*waiting, *self.halted_breakpoints}
        return {} if self.halted_breakpoints else self._saver.answers(run, waiting)

    def end_run(self) -> None:
        """Note that the run is done."""
        self._saver.end_run(self.lease.run)

    async def close(self) -> None:
        """End what the drive started, then close its connections."""
        try:
            with self.stop.token.held():
                while self.stop.token.left:
                    await asyncio.wait([*self.stop.token.left])
                await wait_for_running_effects(self.lease.run)
            await self.services.close()
        finally:
            self._stack.close()


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


async def has_due_task(drive: Drive) -> bool:
    """Whether any task can proceed, instead of all being done or waiting."""
    snapshot, _ = await drive.resume_input()
    if snapshot.created_at is None:
        return True  # it was given nothing: the graph says so
    if drive.reruns_waiting_nodes:
        return not drive.halted_breakpoints
    return bool(snapshot.tasks) and not drive.halted_breakpoints and not _is_only_waiting(snapshot)


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
    if lost := pending_nodes_missing_from(values, app.nodes):
        raise _cannot_resume_error(run, f"it stands before node {lost[0]!r} of {graph.name!r}")
    known = {*app.channels, *graph.retired}
    if lost := saver.lost_keys(values, known):
        raise _cannot_resume_error(run, f"its state holds {lost[0]!r} of {graph.name!r}")
    for task in snapshot.tasks:
        inner = graph.subgraphs.get(task.name)
        if inner is not None and isinstance(task.state, StateSnapshot):
            check_resumable(run, inner.graph, inner.compiled, task.state, saver)


def _cannot_resume_error(run: str, what: str) -> RunError:
    return RunError(
        f"Run {run!r} can't be resumed: {what}, which this version doesn't have. Resume it with the version or the "
        f"workflow file that began it, or start another; what it did: interlock show {run}"
    )


def workflow_context(drive: Drive, prepared: RunConfig) -> WorkflowContext:
    """The context for the workflow's `enter` and `leave`."""
    run, started = drive.lease.run, time.monotonic()

    def stats() -> dict[str, Any]:
        return {**usage_stats(drive.conn, run), "elapsed_ms": round((time.monotonic() - started) * 1000)}

    return WorkflowContext(
        drive.services.transcript,
        drive.services.journal,
        prepared.model,
        prepared.approval_mode,
        prepared.limits,
        stats,
        lambda record: usage_of(drive.conn, run, record),
        list(prepared.agents),
        _attachment_messages(prepared),
        prepared.options.compress,
    )


def _attachment_messages(prepared: RunConfig) -> list[Message]:
    """Raises `InputError` naming a file that can't be shown."""
    options = prepared.options
    if not (options.attach or options.notes):
        return []
    heading = TextPart(text=load_prompt("context/attached").text() + "\n", section="attached")
    parts = build_attachments(options.attach, options.notes)
    return [Message(role="user", origin="context", content=(heading, *parts))]


def first_state(
    chosen: Pipeline, input: WorkflowInput, drive: Drive, context: WorkflowContext, prepared: RunConfig
) -> dict[str, Any]:
    """Return the state that a run's row holds, JSON-like."""
    return chosen.first_state(
        input, context, lambda: {**_run_channels(prepared), **hook_channels(drive, "startup")}
    )


def graph_input(chosen: Pipeline, first: dict[str, Any], drive: Drive, session: str) -> Any:
    """Return what a graph begins with. `first`: the state in its run's row; `session`: why the session begins."""
    return chosen.graph_input(first, hook_channels(drive, session))


def _run_channels(prepared: RunConfig) -> dict[str, str]:
    wanted = prepared.options.protocol or prepared.settings.tools.protocol
    known = {"mode": "", "chosen_mode": prepared.chosen_mode}
    return {**known, **requested_modes(prepared), "protocol": prepared.resolve_protocol(wanted)}


def requested_modes(prepared: RunConfig, approval_mode: str | None = None) -> dict[str, str]:
    """Modes and protocol passed now; otherwise a run keeps its own."""
    protocol = prepared.options.protocol
    chosen = {"approval_mode": approval_mode, "chosen_mode": approval_mode}
    asked = {
        **chosen,
        "mode": prepared.options.mode,
        "protocol": protocol and prepared.resolve_protocol(protocol),
    }
    return {name: value for name, value in asked.items() if value}


def check_mode_switch(asked: Mapping[str, str], now: Mapping[str, Any]) -> None:
    """Raise `RunError` if a person may not switch the run's approval mode to the one asked for."""
    mode, before = asked.get("approval_mode"), approval_mode_state(now)
    if mode and before and mode != before.partition(".")[0]:
        next_state(ApprovalModeChart, before, f"use_{mode}")


def postponed_mode_warnings(chosen: Pipeline, asked: Mapping[str, str], now: Mapping[str, Any]) -> list[str]:
    """Return a line for each mode that differs from the run's and counts only from its next prompt on."""
    goes_on = "counts from the next prompt: this one goes on as it began."
    ends = "doesn't count: this run goes on as it began, and takes no further prompt."
    return [
        f"{name.replace('_', ' ')} {value!r} {goes_on if chosen.follow_up else ends}"
        for name, value in asked.items()
        if now.get(name) != value and name != "chosen_mode"
    ]


def hook_channels(drive: Drive, session: str) -> dict[str, str]:
    """Channels set with each prompt, even if no hooks are configured: the previous prompt's may be stale."""
    configured = drive.services.deps.hooks.configured
    return {
        "hooked": configured,
        **({"session": session} if is_hooked({"hooked": configured}, "SessionStart") else {}),
    }


def next_prompt_state(
    chosen: Pipeline, row: RunRow, prompt: str | None, context: WorkflowContext
) -> dict[str, Any] | None:
    """State for another prompt or a retry after the graph has ended; None: just report its end again."""
    if chosen.follow_up is None or (row.outcome == "done" and not prompt and not context.compress):
        return None
    message = Message(role="user", origin="person", content=replace_surrogates(prompt)) if prompt else None
    more = chosen.follow_up(message, context)
    if context.compress and not more.get("force"):
        raise UserError(f"Run {row.run!r} can't be compressed now: only `main` is, and without a prompt.")
    return more


async def continuation_input(
    chosen: Pipeline,
    prepared: RunConfig,
    given: Any,
    at: Mapping[str, Any],
    drive: Drive,
    context: WorkflowContext,
) -> Any:
    """Return what a graph goes on with: another input, which ends what waits, or a `Command` or None as given.

    `at`: the checkpoint to go on from instead of the newest. Raise `InputError` for another input that doesn't fit.
    """
    drive.config["configurable"].update(at)
    drive.reruns_waiting_nodes = given is None
    await drive.resume_input()
    if given is not None:
        withdraw_open_requests(drive.conn, drive.lease.run)
    if given is None or isinstance(given, Command):
        return cast(Any, given)
    input = chosen.input_from_program(given)
    return graph_input(chosen, first_state(chosen, input, drive, context, prepared), drive, "")
