"""drive: one process advances one run, until it is done, parked, stopped or lost."""

import asyncio
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from langgraph.errors import GraphDrained
from langgraph.types import Command, Interrupt, StateSnapshot

from interlock.engine.driver.compose import DriveConnections, DriveServices, compose
from interlock.engine.driver.event_bus import EventBus
from interlock.engine.driver.lease import Lease
from interlock.engine.driver.prepare import RunConfig
from interlock.engine.driver.stop import Stop, may_block, overdue
from interlock.engine.store import Store, diagnosed
from interlock.engine.store.approvals import ready_answers
from interlock.engine.store.foreign import ForeignSaver, given_answers, paused_at, saver_for
from interlock.engine.store.leases import fence, lost
from interlock.engine.store.lineage import how_it_ended
from interlock.engine.store.saver import Saver, raise_id_clock
from interlock.engine.store.steps import StepLog
from interlock.graphs._langgraph import is_internal, lost_nodes
from interlock.graphs._pipeline import Compiled, Graph, Pipeline
from interlock.graphs.foreign import Foreign, NodeError
from interlock.services.models.names import turn_tracing_off
from interlock.state.deps import RunInfo
from interlock.state.errors import InterlockError, RunError
from interlock.state.task import CHILD

RECURSION_LIMIT = 1_000_000
"""LangGraph's own bound on supersteps; ours is on turns (`state/run.py`)."""


def _info(prepared: RunConfig, run: str, pipeline: str) -> RunInfo:
    asks, brief = prepared.options.interactive, prepared.is_brief
    return RunInfo(
        run,
        pipeline,
        prepared.workspace.root,
        interactive=asks,
        approval_mode=prepared.approval_mode,
        guard=prepared.options.guard,
        brief=brief,
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
        self.refusal = ("", "")
        """Kind of error and message for the user, about a used-up budget."""
        self.awaited = set[str]()
        """Interrupts that waited when it last looked for answers."""
        self.halted = set[str]()
        """Breakpoints of a foreign graph that nobody has let it pass yet."""
        self._loop = asyncio.get_running_loop()
        self.conn = store.connect_driver()
        with ExitStack() as stack:
            stack.callback(self.conn.close)
            fence(self.conn, lease)
            steps = StepLog(prepared.redact, self.conn, lease.run)
            raise_id_clock(self.conn, lease.run)
            options, info = prepared.options, _info(prepared, lease.run, pipeline.name)
            turn_tracing_off()  # the environment could make LangGraph send its runs to a tracing service
            connections = DriveConnections(self.conn, stop.token, steps, bus, self.refuse, lease.epoch)
            self.services = rewired(compose(prepared, info, store, connections))
            self._saver = saver_for(pipeline, self.conn, steps, self.services.deps.approvals, store.path)
            if isinstance(self._saver, ForeignSaver):
                self._saver.stores(self.services.deps.effects)
            self._graph = pipeline.declared(prepared.settings.agents.max_depth)
            self.app: Compiled = self._graph.compile(self._saver)
            thread = {**(options.context or {}), "thread_id": lease.run}
            self.config: Any = {"configurable": thread, "recursion_limit": RECURSION_LIMIT}
            self._stack = stack.pop_all()

    def refuse(self, why: str, kind: str) -> None:
        """Stop because a budget is used up."""
        self.refusal = self.refusal if self.refusal[0] else (kind, why)
        self.stop.later("budget")

    async def advance(self, graph_input: Any, timeout_s: float | None) -> StateSnapshot:
        """Drive until nothing is due or a person must decide; return the last snapshot, including nested ones."""
        theirs = isinstance(self.pipeline, Foreign)
        end = may_block(self.lease.run, timeout_s) if theirs else None
        self.stop.token.overdue = overdue
        timer = self._loop.call_later(timeout_s, self.stop, "timeout") if timeout_s else None
        try:
            with diagnosed(self.store.path):
                while True:
                    await self._stream(graph_input)
                    snapshot = await self._snapshot()
                    resume = self._answers(snapshot)
                    if self.stop.why == "lost":
                        raise lost(self.conn, self.lease)
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
        snapshot = await self._snapshot()
        with diagnosed(self.store.path):
            check_stored(self.lease.run, self._graph, self.app, snapshot, self._saver)
            answers = self._answers(snapshot)
        return snapshot, Command(resume=answers) if answers else None

    async def _snapshot(self) -> StateSnapshot:
        """Raises `NodeError` where a reducer or a type of somebody's graph refuses what its nodes wrote."""
        try:
            with diagnosed(self.store.path):
                return await self.app.aget_state(self.config, subgraphs=True)
        except InterlockError:
            raise
        except Exception as error:
            if isinstance(self.pipeline, Foreign):
                raise NodeError.of(error) from error
            raise

    async def _stream(self, graph_input: Any) -> None:
        try:
            await self.pipeline.advance(
                self.app, graph_input, self.config, self.services.deps, self.stop.control
            )
        except GraphDrained:
            return
        finally:
            self.config["configurable"].pop("checkpoint_id", None)  # it began there, and is past it
            self.conn.flush(last=True)

    def _answers(self, snapshot: StateSnapshot) -> dict[str, Any]:
        """Interrupt id → what it is resumed with, for pending ones with an answer or whose subtask is over."""
        if isinstance(self.pipeline, Foreign):
            waits = {item.id for item in pending(snapshot)}
            self.halted = paused_at(self._saver, self.app, snapshot, self.lease.run)
            self.awaited = {*waits, *self.halted}
            answers = {} if self.halted else given_answers(self.conn, self.lease.run)
            return {name: given for name, given in answers.items() if name in waits}
        waiting = {item.id: child_in(item.value) for item in pending(snapshot)}
        self.awaited = {*waiting}
        answered = {name: True for name in ready_answers(self.conn, self.lease.run) if name in waiting}
        over = {name: True for name, child in waiting.items() if child and how_it_ended(self.conn, child)}
        return {**answered, **over}

    async def close(self) -> None:
        """End what the drive started, then close its connections."""
        try:
            await self.services.close()
        finally:
            self._stack.close()


def pending(snapshot: StateSnapshot) -> list[Interrupt]:
    """Interrupts of the innermost tasks only: an outer task repeats those of its subgraphs, answered ones included."""
    found: list[Interrupt] = []
    for task in snapshot.tasks:
        if isinstance(task.state, StateSnapshot):
            found.extend(pending(task.state))
        else:
            found.extend(task.interrupts)
    return found


async def is_due(drive: Drive) -> bool:
    """Whether any task can proceed, instead of all being done or waiting."""
    snapshot, _ = await drive.resume_input()
    return bool(snapshot.tasks) and not drive.halted and not _only_waits(snapshot)


def _only_waits(snapshot: StateSnapshot) -> bool:
    """Some task waits for a person or a subtask, and every other one waits too or is done.

    If none waits, as in a nested graph that was killed with nothing but its input, the next step is due.
    """
    waits = [
        _only_waits(task.state) if isinstance(task.state, StateSnapshot) else bool(task.interrupts)
        for task in snapshot.tasks
    ]
    return any(waits) and all(wait or task.result for wait, task in zip(waits, snapshot.tasks, strict=True))


def check_stored(run: str, graph: Graph, app: Any, snapshot: StateSnapshot, saver: Saver) -> None:
    """Raises `RunError` if a pending node is gone, or the graph lacks a stored channel (`engine.md` 22).

    `app`: the compiled graph (LangGraph doesn't type its channels). Nested graphs are checked if they are in progress.
    """
    found = saver.get_tuple(snapshot.config)
    values: dict[str, Any] = found.checkpoint["channel_values"] if found else {}
    if lost := lost_nodes(values, app.nodes):
        raise _refused(run, f"it stands before node {lost[0]!r} of {graph.name!r}")
    known = {*app.channels, *graph.retired}
    if lost := [key for key in values if key not in known and not is_internal(key)]:
        raise _refused(run, f"its state holds {lost[0]!r} of {graph.name!r}")
    for task in snapshot.tasks:
        inner = graph.subgraphs.get(task.name)
        if inner is not None and isinstance(task.state, StateSnapshot):
            check_stored(run, inner, inner.compiled, task.state, saver)


def child_in(interrupted: object) -> str:
    """The run an interrupt waits for; empty: it waits for a person."""
    if isinstance(interrupted, str) and interrupted.startswith(CHILD):
        return interrupted.removeprefix(CHILD)
    return ""


def _refused(run: str, what: str) -> RunError:
    return RunError(
        f"Run {run!r} can't be resumed: {what}, which this version doesn't have. Resume it with the version or the "
        f"workflow file that began it, or start another; what it did: interlock show {run}"
    )
