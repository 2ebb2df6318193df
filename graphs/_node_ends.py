"""_node_ends: nodes of a foreign graph that run in threads are seen to their end, whatever stops the graph.

It replaces two functions of LangGraph's engine (`pyproject.toml` pins its version), which has no hook for it.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from copy import copy
from functools import cache, partial
from typing import Any, cast


@cache
def see_threads_to_their_end() -> None:
    """Let a foreign graph wait for nodes that run in threads, and keep what they return, whatever stops it.

    LangGraph's own `invoke` does both. Its async engine drops a thread that it can't cancel, and the second of its two
    cancellations interrupts the waiting for what the first one reached.
    """
    from dataclasses import replace

    from langgraph.pregel import _runner
    from langgraph.pregel._executor import AsyncBackgroundExecutor

    from interlock.nodes.here import DRIVE, runtime_here
    from interlock.state.deps import to_its_end

    run_task: Any = _runner.arun_with_retry
    leave = AsyncBackgroundExecutor.__aexit__

    async def run(task: Any, *args: Any, **named: Any) -> Any:
        if (drive := DRIVE.get()) and task.timeout:
            task = replace(task, proc=_Left(task.proc, drive.deps.cancel.left))
        elif drive and _runs_in_thread(task.proc):
            task = replace(task, proc=_Uncut(task.proc))
        return await run_task(task, *args, **named)

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

    made: Any = AsyncBackgroundExecutor
    _runner.arun_with_retry, made.__aexit__ = run, leave_at_the_end


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


class _Uncut:
    """Runs a node to its end, even if its task is cancelled meanwhile; one without a thread yet doesn't begin."""

    def __init__(self, own: Any) -> None:
        self._stop = threading.Event()
        self._own = _unless(self._stop, own)

    async def ainvoke(self, *args: Any, **named: Any) -> Any:
        work = asyncio.ensure_future(self._own.ainvoke(*args, **named))
        stop: asyncio.CancelledError | None = None
        while not work.done():
            try:
                await asyncio.wait({work})
            except asyncio.CancelledError as asked:
                self._stop.set()
                stop = asked
        if stop is None:
            return work.result()
        if work.cancelled() or work.exception():
            raise stop
        if task := asyncio.current_task():
            # A graph that runs this node in the task of its own is to stop, once it has saved what the node returned.
            task.uncancel()
            asyncio.get_running_loop().call_soon(task.cancel)
        return work.result()

    async def astream(self, *args: Any, **named: Any) -> AsyncIterator[Any]:
        yield await self.ainvoke(*args, **named)


class _Left:
    """Runs a node that LangGraph leaves behind when it takes too long: it cancels it, and doesn't wait for its end."""

    def __init__(self, own: Any, left: set[asyncio.Future[Any]]) -> None:
        self._own, self._left = own, left

    async def ainvoke(self, *args: Any, **named: Any) -> Any:
        if task := asyncio.current_task():
            self._left.add(task)
            task.add_done_callback(self._left.discard)
        return await self._own.ainvoke(*args, **named)

    async def astream(self, *args: Any, **named: Any) -> AsyncIterator[Any]:
        yield await self.ainvoke(*args, **named)


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
