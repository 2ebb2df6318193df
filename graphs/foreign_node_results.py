"""foreign_node_results: keeps what a node of a foreign graph returns, whatever stops the graph.

LangGraph's own `invoke` does both. Its async engine drops a thread that it can't cancel, and what a node returned until
its callbacks are over. It takes who submits its tasks from the configuration: `Ends`, which adds the above.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from contextvars import ContextVar
from copy import copy
from functools import partial, wraps
from inspect import iscoroutinefunction
from typing import Any, TypeVar, cast
from weakref import WeakSet

from interlock.graphs.langgraph_internals import current_task_id
from interlock.nodes.current_run import current_runtime
from interlock.state.deps import GRACE_S, Deps, await_despite_cancel

T = TypeVar("T")


class NodeCompletionTracker:
    """The ends of a graph's nodes, and of those of graphs inside it."""

    def __init__(self, deps: Deps, *, has_callbacks: bool) -> None:
        """`has_callbacks`: callbacks call `mark_task_ended`; else a thread's end counts, and what it returned may be
        lost."""
        self.has_callbacks = has_callbacks
        self.cancel, self._loop = deps.cancel, asyncio.get_running_loop()
        self.nodes: dict[str, _UncancelledNode] = {}
        """Task of a graph that a node calls, which runs in a thread → the node."""
        self._executors = set[Any]()
        self._held = ExitStack()
        _install_thread_pool()

    def with_task_submitter(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return a configuration by which a graph's tasks are submitted here."""
        from langgraph._internal._constants import CONFIG_KEY_RUNNER_SUBMIT

        submitter = {CONFIG_KEY_RUNNER_SUBMIT: lambda: self._submit_node}
        return {**config, "configurable": {**config["configurable"], **submitter}}

    async def await_graph_and_nodes(self, work: Awaitable[T]) -> T:
        """Return what a graph returns, once its nodes have ended and what they returned is saved."""
        task = asyncio.ensure_future(self._wait_until_saved(work))

        def stop() -> None:
            self.hold_cancellation()
            task.cancel()

        with self._held:
            return await await_despite_cancel(task, on_cancelled=stop)

    async def _wait_until_saved(self, work: Awaitable[T]) -> T:
        try:
            return await work
        finally:
            while left := [one for executor in self._executors for one in executor.tasks if not one.done()]:
                await asyncio.wait(left)

    def hold_cancellation(self) -> None:
        """From now on, the drive only waits for ends."""
        if not self.cancel.is_held and not current_runtime():
            self._held.enter_context(self.cancel.flag_unstoppable_work())

    def mark_task_ended(self, task: str) -> None:
        """Note that a task of LangGraph's has ended; it isn't saved yet."""
        if node := self.nodes.pop(task, None):
            self._loop.call_soon_threadsafe(
                _call_after_loop_iterations, _TURNS, node.forget_saved_task_and_cancel_if_last, task
            )

    def _submit_node(self, run: Any, task: Any, *args: Any, **named: Any) -> Any:
        from langgraph._internal._constants import CONFIG_KEY_CALL

        engine = named["configurable"][CONFIG_KEY_CALL].keywords["schedule_task"].__self__
        if not iscoroutinefunction(run):  # in a thread, where LangGraph waits
            return engine.submit(run, task, *args, **named)
        self._executors.add(engine.submit.__self__)
        return engine.submit(self._run_uncancelled, run, task, *args, **named)

    async def _run_uncancelled(self, run: Any, task: Any, *args: Any, **named: Any) -> Any:
        from dataclasses import replace

        return await run(replace(task, proc=_UncancelledNode(task, self)), *args, **named)


_TURNS = 4
"""Turns of the event loop from the callback at a node's end, which LangChain shields, until the node is saved."""


def _call_after_loop_iterations(iterations: int, call: Callable[..., object], *args: Any) -> None:
    loop = asyncio.get_running_loop()
    loop.call_soon(_call_after_loop_iterations, iterations - 1, call, *args) if iterations else call(*args)


_NODE: ContextVar["_UncancelledNode | None"] = ContextVar(
    "the node of a foreign graph that runs", default=None
)
_LOOPS: WeakSet[asyncio.AbstractEventLoop] = WeakSet()


def _install_thread_pool() -> None:
    loop = asyncio.get_running_loop()
    if loop not in _LOOPS:
        _LOOPS.add(loop)
        loop.set_default_executor(_TrackingThreadPool())


class _TrackingThreadPool(ThreadPoolExecutor):
    """The threads of an event loop, as Python makes them; nodes know of theirs."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **named: Any) -> Future[T]:
        thread = super().submit(fn, *args, **named)
        if node := _NODE.get():
            node.record_thread(fn, thread)
        return thread


class _UncancelledNode:
    """Runs a node to its end, also where its task is cancelled meanwhile.

    A function without `async` ends, also one of a graph that the node calls; one that waits for a thread doesn't begin.
    Other functions are cancelled. What follows the function, callbacks and edges, has a while.
    """

    def __init__(self, task: Any, ends: NodeCompletionTracker) -> None:
        # The last steps write what the node has returned. Where there are none, it calls one in a `@task`.
        self._own = _with_return_callback(task.proc, max(1, len(task.writers)), self._mark_returned)
        self._is_thread = not task.timeout and _is_run_in_thread(task.proc)
        self._has_time_out, self._id, self._ends = bool(task.timeout), task.id, ends
        self._has_returned = self._is_stopping = False
        self._threads: dict[str, list[Future[Any]]] = {}
        """Task, its own or of a graph that it calls → its threads."""

    async def ainvoke(self, *args: Any, **named: Any) -> Any:
        return await self._run_to_end(lambda: self._own.ainvoke(*args, **named))

    async def astream(self, *args: Any, **named: Any) -> AsyncIterator[Any]:
        """As `ainvoke`; each handler that taps streams sees what the node yields."""
        yield await self._run_to_end(lambda: _exhaust(self._own.astream(*args, **named)))

    async def _run_to_end(self, begin: Callable[[], Any]) -> Any:
        self._has_returned = self._is_stopping = False
        self._threads.clear()
        token = _NODE.set(self)
        try:
            self._work: asyncio.Future[Any] = asyncio.ensure_future(begin())
        finally:
            _NODE.reset(token)
        if self._has_time_out:  # LangGraph doesn't wait for the end of one that takes too long
            self._ends.cancel.left.add(self._work)
            self._work.add_done_callback(self._ends.cancel.left.discard)
        return await _await_and_stop_on_cancel(self._work, self._cancel_unless_threads_run)

    def _mark_returned(self) -> None:
        self._has_returned = True

    def record_thread(self, work: Any, thread: Future[Any]) -> None:
        """Note that a thread runs the node, or a node or tool of a graph that it calls."""
        called, *_ = getattr(work, "args", ()) or (None,)
        task = current_task_id()
        if self._is_thread:
            self._threads.setdefault(self._id, []).append(thread)
        elif task != self._id and getattr(called, "__module__", "") == _RUNS_FUNCTIONS:
            self._threads.setdefault(task, []).append(thread)
            self._ends.nodes[task] = self
            if not self._ends.has_callbacks:
                thread.add_done_callback(lambda _: self._ends.mark_task_ended(task))

    def forget_saved_task_and_cancel_if_last(self, task: str) -> None:
        """Forget a task that is saved."""
        self._threads.pop(task, None)
        if self._is_stopping and not self._threads:
            self._work.cancel()

    def _cancel_unless_threads_run(self) -> None:
        if self._is_stopping:  # a second time would interrupt a graph inside that waits for its own nodes
            return
        self._is_stopping = True
        self._ends.hold_cancellation()
        begun = [not thread.cancel() for threads in self._threads.values() for thread in threads]
        if self._has_returned:
            asyncio.get_running_loop().call_later(GRACE_S, self._work.cancel)
        elif not any(begun):
            self._work.cancel()


_RUNS_FUNCTIONS = "langchain_core.runnables.config"
"""The module that runs functions of nodes, and tools, in threads."""


def _is_run_in_thread(runnable: Any) -> bool:
    """Whether a node, of its writers before it, is a function without `async`, or calls tools without."""
    from langchain_core.runnables import RunnableLambda

    node = getattr(runnable, "steps", [runnable])[0]
    if tools := getattr(node, "tools_by_name", None):
        from interlock.nodes.guarded_tools import is_sync_tool

        return all(map(is_sync_tool, tools.values()))
    if isinstance(node, RunnableLambda):
        return not hasattr(cast(Any, node), "afunc")
    return isinstance(getattr(node, "afunc", None), partial)


async def _await_and_stop_on_cancel(work: asyncio.Future[Any], stop: Callable[[], object]) -> Any:
    """What the work returns, however often its caller is cancelled: `stop` is called each time."""
    stopped: asyncio.CancelledError | None = None
    while not work.done():
        try:
            await asyncio.wait({work})
        except asyncio.CancelledError as asked:
            stop()
            stopped = asked
    if stopped is None:
        return work.result()
    if work.cancelled() or work.exception():
        raise stopped
    if task := asyncio.current_task():
        # A graph that runs this node in the task of its own is to stop, once it has saved what the node returned.
        task.uncancel()
        asyncio.get_running_loop().call_soon(task.cancel)
    return work.result()


async def _exhaust(parts: AsyncIterator[Any]) -> None:
    async for _ in parts:
        pass


def _with_return_callback(runnable: Any, writer_count: int, on_return: Callable[[], object]) -> Any:
    """A copy of a node that calls `on_return` as soon as its function has returned."""
    from langgraph._internal._runnable import RunnableSeq

    if isinstance(runnable, RunnableSeq):
        made = copy(cast(Any, runnable))
        if own := made.steps[:-writer_count]:  # the node of START only writes
            made.steps = [
                *own[:-1],
                _with_return_callback(own[-1], writer_count, on_return),
                *made.steps[-writer_count:],
            ]
        return made
    function: Callable[..., Awaitable[Any]] | None = getattr(runnable, "afunc", None)
    if not iscoroutinefunction(function):
        return runnable

    @wraps(function)
    async def call(*args: Any, **named: Any) -> Any:
        result = await function(*args, **named)
        on_return()
        return result

    made = copy(runnable)
    made.afunc = call
    return made
