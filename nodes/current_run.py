"""current_run: the run in which code that isn't ours is called, found from within its nodes and tools."""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextvars import ContextVar
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, NoReturn, TypeVar

from langgraph.errors import GraphInterrupt
from langgraph.runtime import get_runtime
from langgraph.types import Interrupt

from interlock.state.deps import Deps
from interlock.state.errors import RunError, UserError

T = TypeVar("T")


@dataclass(frozen=True)
class CurrentDrive:
    """What a drive tells the code of a foreign graph."""

    deps: Deps
    loop: asyncio.AbstractEventLoop


DRIVE: ContextVar[CurrentDrive | None] = ContextVar("drive of a foreign graph", default=None)


def current_runtime() -> Any:
    """LangGraph's runtime of the node that runs; None: there is none."""
    try:
        return get_runtime()
    except (RuntimeError, KeyError):  # outside a graph
        return None


def current_deps(runtime: Any = None) -> Deps | None:
    """`Deps` of the run; None: it isn't one of Interlock."""
    own = getattr(runtime or current_runtime(), "context", None)
    if isinstance(own, Deps):
        return own
    drive = DRIVE.get()
    return drive.deps if drive else None


def require_current_task_info(caller: str, deps: Deps, runtime: Any = None) -> Any:
    """LangGraph's facts of the task that runs. Raises `RunError` where the record couldn't name it."""
    info = getattr(runtime, "execution_info", None) or getattr(current_runtime(), "execution_info", None)
    if info is None:
        raise RunError(f"{caller} was called outside a node, so the journal can't name it.")
    if info.thread_id != deps.info.run:
        raise RunError(
            f"{caller} stands in a graph whose steps aren't kept with the run, so the journal can't name it. "
            "Compile that graph without a checkpointer of its own, and call it without a thread_id."
        )
    return info


def submit_to_run_loop(
    call_name: str, async_alternative: str, work: Callable[[], Coroutine[Any, Any, T]]
) -> Future[T]:
    """Run `work` in the run's event loop, for code in a thread. Raises `UserError` in that loop's own thread.

    `async_alternative`: what an async node calls.
    """
    drive = _current_drive()
    if drive is None or _is_running_in_this_thread(drive.loop):
        raise UserError(f"{call_name} would block the run: in an async node, use {async_alternative}.")

    async def guarded() -> T:
        with drive.deps.cancel.cancel_on_stop():
            return await work()

    return asyncio.run_coroutine_threadsafe(guarded(), drive.loop)


def schedule_in_run_loop(function: Callable[..., Any], *args: Any) -> None:
    """Call a function in the run's event loop, even while the run is stopping."""
    drive = _current_drive()
    assert drive is not None
    drive.loop.call_soon_threadsafe(function, *args)


def _current_drive() -> CurrentDrive | None:
    """The drive of the node that runs, whosever graph it is."""
    if drive := DRIVE.get():
        return drive
    deps = current_deps()
    return CurrentDrive(deps, deps.cancel.loop) if deps and deps.cancel.loop else None


def _is_running_in_this_thread(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


def park_until_answered(*request_keys: str) -> NoReturn:
    """Stop the node until a person has answered these requests; it then runs again, and reads the answers' rows.

    Unlike `interrupt`, it isn't counted by LangGraph: the node's own interrupts keep their answers, in any order.
    """
    raise GraphInterrupt(
        tuple(Interrupt(value=key, id=sha256(key.encode()).hexdigest()[:32]) for key in request_keys)
    )
