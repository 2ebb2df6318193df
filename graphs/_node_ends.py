"""_node_ends: what a node of a foreign graph returns is kept, whatever stops the graph; one in a thread ends first.

It replaces two functions of LangGraph's engine (`pyproject.toml` pins its version), which has no hook for it.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from copy import copy
from functools import cache, partial, wraps
from inspect import iscoroutinefunction
from typing import Any, cast

from interlock.state.deps import GRACE_S


@cache
def see_threads_to_their_end() -> None:
    """Let a foreign graph wait for nodes that run in threads, and keep what any node returns, whatever stops it.

    LangGraph's own `invoke` does both. Its async engine drops a thread that it can't cancel, and what a node returned
    until its callbacks are over; the second of its two cancellations interrupts the waiting for what the first one
    reached.
    """
    from dataclasses import replace

    from langgraph.pregel import _runner
    from langgraph.pregel._executor import AsyncBackgroundExecutor

    from interlock.nodes.here import DRIVE, runtime_here
    from interlock.state.deps import to_its_end

    run_task: Any = _runner.arun_with_retry
    leave = AsyncBackgroundExecutor.__aexit__

    async def run(task: Any, *args: Any, **named: Any) -> Any:
        if (drive := DRIVE.get()) is None:
            return await run_task(task, *args, **named)
        if not task.timeout and _runs_in_thread(task.proc):
            return await run_task(replace(task, proc=_Uncut(task.proc)), *args, **named)
        left = drive.deps.cancel.left if task.timeout else set[asyncio.Future[Any]]()
        node = _Awaited(task.proc, len(task.writers), left)
        work = asyncio.ensure_future(run_task(replace(task, proc=node), *args, **named))
        return await _returned(work, partial(node.stop, work))

    async def wait(executor: Any, raised: Sequence[Any]) -> None:
        try:
            await leave(executor, *raised)
        finally:
            while left := [one for one in executor.tasks if not one.done()]:  # what the nodes' ends save
                await asyncio.wait(left)

    async def leave_at_the_end(executor: Any, *raised: Any) -> None:
        if (drive := DRIVE.get()) is None:
            return await leave(executor, *raised)
        if runtime_here():  # of a graph inside a node
            return await to_its_end(wait(executor, raised))
        with drive.deps.cancel.held():
            return await to_its_end(wait(executor, raised))

    backend: Any = AsyncBackgroundExecutor
    _runner.arun_with_retry, backend.__aexit__ = run, leave_at_the_end


def _runs_in_thread(runnable: Any) -> bool:
    """Whether a node, of its writers before it, is a function without `async`, or calls tools without."""
    from langchain_core.runnables import RunnableLambda

    node = getattr(runnable, "steps", [runnable])[0]
    if tools := getattr(node, "tools_by_name", None):
        from interlock.nodes.guarded import is_sync_tool

        return all(map(is_sync_tool, tools.values()))
    if isinstance(node, RunnableLambda):
        return not hasattr(cast(Any, node), "afunc")
    return isinstance(getattr(node, "afunc", None), partial)


async def _returned(work: asyncio.Future[Any], stop: Callable[[], object]) -> Any:
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


class _Uncut:
    """Runs a node to its end, even if its task is cancelled meanwhile; one without a thread yet doesn't begin."""

    def __init__(self, own: Any) -> None:
        self._stop = threading.Event()
        self._own = _unless(self._stop, own)

    async def ainvoke(self, *args: Any, **named: Any) -> Any:
        return await _returned(asyncio.ensure_future(self._own.ainvoke(*args, **named)), self._stop.set)

    async def astream(self, *args: Any, **named: Any) -> AsyncIterator[Any]:
        work = asyncio.ensure_future(_consumed(self._own.astream(*args, **named)))
        yield await _returned(work, self._stop.set)


class _Awaited:
    """Runs a node that a stop cancels until its function has returned; what follows, callbacks and edges, has a while.

    `left` holds it until then: LangGraph cancels a node that takes too long, and doesn't wait for its end.
    """

    def __init__(self, own: Any, writers: int, left: set[asyncio.Future[Any]]) -> None:
        """`writers`: how many steps of it write what the node has returned; 0: it calls one in a `@task`."""
        self._own, self._left, self._has_returned = _noted(own, max(1, writers), self._note), left, False

    def _note(self) -> None:
        self._has_returned = True

    def stop(self, work: asyncio.Future[Any]) -> None:
        if self._has_returned:
            asyncio.get_running_loop().call_later(GRACE_S, work.cancel)
        else:
            work.cancel()

    def _begin(self) -> None:
        if task := asyncio.current_task():
            self._left.add(task)
            task.add_done_callback(self._left.discard)
        self._has_returned = False

    async def ainvoke(self, *args: Any, **named: Any) -> Any:
        self._begin()
        return await self._own.ainvoke(*args, **named)

    async def astream(self, *args: Any, **named: Any) -> AsyncIterator[Any]:
        """As `ainvoke`; each handler that taps streams sees what the node yields."""
        self._begin()
        yield await _consumed(self._own.astream(*args, **named))


async def _consumed(parts: AsyncIterator[Any]) -> None:
    async for _ in parts:
        pass


def _noted(runnable: Any, writers: int, note: Callable[[], object]) -> Any:
    """A copy of a node that calls `note` as soon as its function has returned."""
    from langgraph._internal._runnable import RunnableSeq

    if isinstance(runnable, RunnableSeq):
        made = copy(cast(Any, runnable))
        if own := made.steps[:-writers]:  # the node of START only writes
            made.steps = [*own[:-1], _noted(own[-1], writers, note), *made.steps[-writers:]]
        return made
    function: Callable[..., Awaitable[Any]] | None = getattr(runnable, "afunc", None)
    if not iscoroutinefunction(function):
        return runnable

    @wraps(function)
    async def call(*args: Any, **named: Any) -> Any:
        result = await function(*args, **named)
        note()
        return result

    made = copy(runnable)
    made.afunc = call
    return made


def _unless(stop: threading.Event, runnable: Any) -> Any:
    """A copy of a runnable whose function isn't called once `stop` is set: it waited for a free thread until then."""
    if steps := getattr(runnable, "steps", None):
        made = copy(runnable)
        made.steps = [_unless(stop, steps[0]), *steps[1:]]
        return made
    if not isinstance(call := getattr(runnable, "afunc", None), partial):
        return runnable
    run_in_executor, (executor, function, *args) = call.func, call.args

    def begin(*args: Any, **named: Any) -> Any:
        if stop.is_set():
            raise asyncio.CancelledError
        return function(*args, **named)

    made = copy(runnable)
    made.afunc = partial(run_in_executor, executor, begin, *args, **call.keywords)
    return made
