"""engine: the single entry point to runs, for the CLI, tests and users' programs. Heavy imports are deferred."""

from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from interlock.engine.options import Decision, Options, Outcome, Pending, Renderer

if TYPE_CHECKING:
    from interlock.engine.driver.stop import Stop
    from interlock.engine.travel.fork import Forked
    from interlock.graphs.pipeline import Pipeline
    from interlock.state.events import Event
    from interlock.state.run import WorkflowInput

_P = ParamSpec("_P")
_T = TypeVar("_T")


async def run(
    workflow: "str | Pipeline",
    input: "Mapping[str, Any] | WorkflowInput",
    *,
    options: Options,
    renderers: Sequence[Renderer] = (),
    run_id: str | None = None,
    stop: "Stop | None" = None,
    follow: bool = True,
) -> Outcome:
    """Start a run of `workflow` and drive it until it is done, fails, or a person must decide.

    `stop`, called in the same loop, asks the run to end early; without it, signals do. A `Pipeline` passed in is
    registered under its name for the rest of this process. `follow`: also drive the run that carries on its work, such
    as the one that carries out an approved plan, and return how that ended.
    Raises `InterlockError` for errors before the run exists; later errors are in the outcome.
    """
    from interlock.engine.driver import runner
    from interlock.engine.driver.stop import provide_stop

    with provide_stop(stop) as stop:
        return await runner.begin_run(workflow, input, options, renderers, run_id, stop, follow)


async def resume(
    run: str,
    *,
    decisions: Sequence[Decision] = (),
    prompt: str | None = None,
    options: Options,
    renderers: Sequence[Renderer] = (),
    stop: "Stop | None" = None,
    instead: bool = False,
    follow: bool = True,
) -> Outcome:
    """Persist the decisions, then resume the run: with what they allow, after a crash, or with a further prompt.

    `stop`, `follow`: as for `run`. `instead`: the prompt replaces whatever an interrupted run was about to do.
    """
    from interlock.engine.driver import runner
    from interlock.engine.driver.stop import provide_stop

    with provide_stop(stop) as stop:
        return await runner.resume_run(
            run,
            decisions,
            prompt,
            options,
            renderers,
            stop,
            replace_unfinished=instead,
            drive_successors=follow,
        )


async def events(
    function: Callable[_P, Coroutine[Any, Any, Outcome]], *args: _P.args, **kwargs: _P.kwargs
) -> "AsyncGenerator[Event, None]":
    """Iterate over the events of `run` or `resume`: `async for event in events(run, "main", …)`.

    The first event is `Init`, with the run's id; the last is `Result`, which carries what an `Outcome` does. Closing
    the iterator early stops the run, which can be resumed. Raises what the call raises.
    """
    import asyncio

    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[Event] = asyncio.Queue()

    def show(event: "Event") -> None:  # on its own thread
        loop.call_soon_threadsafe(queue.put_nowait, event)

    more: Any = {**kwargs, "renderers": [*cast(Any, kwargs.get("renderers", ())), show]}
    work = asyncio.ensure_future(cast(Any, function)(*args, **more))
    try:
        while not (work.done() and queue.empty()):
            event = asyncio.ensure_future(queue.get())
            await asyncio.wait({event, work}, return_when=asyncio.FIRST_COMPLETED)
            if event.done():
                yield event.result()
            else:
                event.cancel()
        await work
    finally:
        if not work.done():
            work.cancel()
            await asyncio.wait({work})


async def fork(
    run: str, at: int, *, home: Path, workspace: Path | None = None, in_place: bool = False
) -> "Forked":
    """Create a run that shares the history of `run` up to root step `at`, with the files as they were then.

    It works in `workspace`, in place, or by default in a new folder beside the run's own. The parent never changes.
    Raises `UserError`.
    """
    import asyncio

    return await asyncio.to_thread(fork_sync, run, at, home=home, workspace=workspace, in_place=in_place)


def fork_sync(
    run: str, at: int, *, home: Path, workspace: Path | None = None, in_place: bool = False
) -> "Forked":
    """`fork` for callers without an event loop."""
    from interlock.engine.travel.fork import fork_run

    return fork_run(home, run, at, workspace=workspace, in_place=in_place)


def make_sync(function: Callable[_P, Coroutine[Any, Any, _T]]) -> Callable[_P, _T]:
    """`function` for callers without an event loop; the first signal stops what it drives."""

    @wraps(function)
    def alone(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        import asyncio  # deferred: it costs the fast commands 20 ms

        from interlock.engine.driver.stop import handle_signals

        with handle_signals():
            return asyncio.run(function(*args, **kwargs))

    return alone


run_sync = make_sync(run)
"""`run` in its own event loop."""
resume_sync = make_sync(resume)
"""`resume` in its own event loop."""

__all__ = [
    "Decision",
    "Options",
    "Outcome",
    "Pending",
    "Renderer",
    "events",
    "fork",
    "fork_sync",
    "resume",
    "resume_sync",
    "run",
    "run_sync",
]
