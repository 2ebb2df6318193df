"""drive: one process advances one run, until it is done, parked, stopped or lost."""

import asyncio
import os
import signal
import sys
import termios
import threading
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Any

from langgraph.errors import GraphDrained
from langgraph.runtime import RunControl
from langgraph.types import Command, Interrupt, StateSnapshot

from interlock.engine.driver.compose import DriveConnections, DriveServices, compose
from interlock.engine.driver.event_bus import EventBus
from interlock.engine.driver.lease import Lease
from interlock.engine.driver.prepare import RunConfig
from interlock.engine.store import Store, diagnosed
from interlock.engine.store.approvals import ready_answers
from interlock.engine.store.foreign import ForeignSaver, given_answers, paused_at, saver_for
from interlock.engine.store.leases import fence, lost
from interlock.engine.store.lineage import how_it_ended
from interlock.engine.store.saver import Saver, raise_id_clock
from interlock.engine.store.steps import StepLog
from interlock.graphs._langgraph import is_internal, lost_nodes
from interlock.graphs._pipeline import Compiled, Graph, Pipeline
from interlock.graphs.foreign import Foreign
from interlock.services.models import turn_tracing_off
from interlock.state.deps import RunInfo, Token
from interlock.state.errors import RunError
from interlock.state.task import CHILD

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SAME_PRESS_S = 0.1
"""Seconds within which a second signal is an echo of the first: `timeout` signals its child, then the group."""
_CANCELLED = 130
_TIMED_OUT = 124
"""Exit codes (`cli.md`)."""
GRACE_S = 5.0
"""Seconds between a stop and the end of the process, if somebody's code blocks: Python can't end a thread."""
_SHOW_CURSOR = b"\x1b[?25h\x1b[0m"


@contextmanager
def signals_held() -> Generator["_Handler | None"]:
    """Hold the first SIGINT, SIGTERM or SIGHUP for the run driven in this block; a second exits the process.

    Enter it before the event loop exists: asyncio would install its own handler, which cancels whatever the run has
    just started. Outside the main thread nothing is installed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield None
        return
    current = signal.getsignal(signal.SIGINT)
    handler = current if isinstance(current, _Handler) else _Handler()
    handler.users += 1
    try:
        yield handler
    finally:
        handler.users -= 1
        if not handler.users:
            handler.restore()


@contextmanager
def stop_on_signals(request: Callable[[], None]) -> Generator[None]:
    """Like `signals_held`, but the first signal, even one already received, calls `request` on the running loop.

    Overlapping drives in one process share the handler.
    """
    with signals_held() as handler:
        if handler is None:
            yield
            return
        handler.join(request)
        try:
            yield
        finally:
            handler.leave(request)


class _Handler:
    """A plain signal handler, not the loop's, so the second signal works while the loop is busy."""

    def __init__(self) -> None:
        self.users = 0
        self.blocking = ""
        """The run whose code may heed no stop; empty: none."""
        self._timers: list[threading.Timer] = []
        self._requests: dict[Callable[[], None], asyncio.AbstractEventLoop] = {}
        self._first_at: float | None = None
        self._terminal = _terminal_settings()
        # A process that ignores SIGHUP, as under `nohup`, should keep ignoring it.
        numbers = [n for n in _SIGNALS if n != signal.SIGHUP or signal.getsignal(n) != signal.SIG_IGN]
        self._previous = {number: signal.signal(number, self) for number in numbers}

    def join(self, request: Callable[[], None]) -> None:
        self._requests[request] = asyncio.get_running_loop()
        if self._first_at is not None:
            request()

    def leave(self, request: Callable[[], None]) -> None:
        del self._requests[request]

    def leave_after(self, seconds: float, code: int) -> threading.Timer:
        """End the process then if it is stuck; its run was killed, and can be resumed."""
        timer = threading.Timer(seconds, self._leave_if_stuck, (self.blocking, code))
        timer.daemon = True
        timer.start()
        self._timers.append(timer)
        return timer

    def _leave_if_stuck(self, run: str, code: int) -> None:
        """Stuck: a loop that drives doesn't answer, or no drive is left and still the process waits for a thread."""
        loops = {*self._requests.values()}
        if loops and all(_answers(loop) for loop in loops):
            self.leave_after(GRACE_S, code)
            return
        _restore_terminal(self._terminal)
        line = (
            f"interlock: code of run {run!r} blocks and can't be stopped; the process ends, as if killed.\n"
        )
        os.write(2, f"{line}Go on with: interlock resume {run}\n".encode())
        os._exit(code)

    def restore(self) -> None:
        for timer in self._timers:
            timer.cancel()
        for number, previous in self._previous.items():
            signal.signal(number, previous)

    def __call__(self, _number: int, _frame: FrameType | None) -> None:
        now = time.monotonic()
        if self._first_at is None:
            self._first_at = now
            if self.blocking:
                self.leave_after(GRACE_S, _CANCELLED)
            for request, loop in self._requests.items():
                loop.call_soon_threadsafe(request)
        elif now - self._first_at > _SAME_PRESS_S:
            _restore_terminal(self._terminal)
            os._exit(_CANCELLED)  # supervised processes see end-of-file and exit too


def _answers(loop: asyncio.AbstractEventLoop) -> bool:
    answered = threading.Event()
    try:
        loop.call_soon_threadsafe(answered.set)
    except RuntimeError:  # closed
        return False
    return answered.wait(1)


def _may_block(run: str, timeout_s: float | None) -> threading.Timer | None:
    """Let a signal, or the time-out, end the process if the run's code heeds neither."""
    handler = signal.getsignal(signal.SIGINT)
    if not isinstance(handler, _Handler):
        return None
    handler.blocking = run
    return handler.leave_after(timeout_s + GRACE_S, _TIMED_OUT) if timeout_s else None


def _terminal_settings() -> list[Any] | None:
    try:
        return termios.tcgetattr(0)
    except termios.error:
        return None


def _restore_terminal(settings: list[Any] | None) -> None:
    # From the background, changing a terminal would stop this process instead of letting it exit.
    try:
        if settings is None or os.tcgetpgrp(0) != os.getpgrp():
            return
    except OSError:  # it isn't this process's: another one started it, and restores it (`cli/warm.py`)
        return
    termios.tcsetattr(0, termios.TCSANOW, settings)
    if sys.stderr.isatty():
        os.write(2, _SHOW_CURSOR)


RECURSION_LIMIT = 1_000_000
"""LangGraph's own bound on supersteps; ours is on turns (`state/run.py`)."""


class Stop:
    """Asks a drive to end before its work is done, even before it exists. The run can be resumed."""

    def __init__(self) -> None:
        self.token = Token()
        self.control = RunControl()
        self.why = ""
        """`cancelled`, `timeout`, `budget` or `lost`; empty: no stop requested."""

    def __call__(self, why: str = "cancelled") -> None:
        """Cancel work in flight, and start nothing more."""
        self.later(why)
        self.token.request()

    def later(self, why: str) -> None:
        """Let work in flight finish, and start nothing more."""
        self.why = self.why or why
        self.control.request_drain(why)


@contextmanager
def stoppable(outer: Stop | None = None) -> Generator[Stop]:
    """Yield the `Stop` of a drive; unless the caller passes its own, signals trigger it."""
    if outer is not None:
        yield outer
        return
    stop = Stop()
    with stop_on_signals(stop):
        yield stop


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
        self.bus = bus
        self.stop = stop
        self.refusal = ""
        """Message for the user about a used-up budget."""
        self.awaited = set[str]()
        """Interrupts that waited when it last looked for answers."""
        self.halted = set[str]()
        """Breakpoints of a foreign graph that nobody has let it pass yet."""
        self._stack = ExitStack()
        self._loop = asyncio.get_running_loop()
        self.conn = store.connect_driver()
        self._stack.callback(self.conn.close)
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

    def refuse(self, why: str) -> None:
        """Stop because the budget is used up."""
        self.refusal = why
        self.stop.later("budget")

    async def advance(self, graph_input: Any, timeout_s: float | None) -> StateSnapshot:
        """Drive until nothing is due or a person must decide; return the last snapshot, including nested ones."""
        theirs = isinstance(self.pipeline, Foreign)
        end = _may_block(self.lease.run, timeout_s) if theirs else None
        timer = self._loop.call_later(timeout_s, self.stop, "timeout") if timeout_s else None
        try:
            with diagnosed(self.store.path):
                while True:
                    await self._stream(graph_input)
                    snapshot = await self.app.aget_state(self.config, subgraphs=True)
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
        with diagnosed(self.store.path):
            snapshot = await self.app.aget_state(self.config, subgraphs=True)
            check_stored(self.lease.run, self._graph, self.app, snapshot, self._saver)
            answers = self._answers(snapshot)
        return snapshot, Command(resume=answers) if answers else None

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
