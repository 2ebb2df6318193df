"""engine: the one door to runs, for the CLI, tests and users' programs. Light until something is driven."""

from collections.abc import Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from interlock.engine.options import Decision, Options, Outcome, Renderer

if TYPE_CHECKING:
    from interlock.graphs._pipeline import Pipeline


async def run(
    workflow: "str | Pipeline",
    input: Mapping[str, Any],
    *,
    options: Options,
    renderers: Sequence[Renderer] = (),
    run_id: str | None = None,
) -> Outcome:
    """Start a run of `workflow` and drive it until it is done, fails, or somebody must decide.

    A `Pipeline` of the caller's own is known by its name from then on, in this process.
    Raises `InterlockError` for what is wrong before the run exists; later errors are in the outcome.
    """
    from interlock.engine.driver import runner

    return await runner.run(workflow, input, options=options, renderers=renderers, run_id=run_id)


async def resume(
    run: str,
    *,
    decisions: Sequence[Decision] = (),
    prompt: str | None = None,
    options: Options,
    renderers: Sequence[Renderer] = (),
) -> Outcome:
    """Record decisions durably, then go on with the run: after them, after a crash, or with a further prompt."""
    from interlock.engine.driver import runner

    return await runner.resume(run, decisions=decisions, prompt=prompt, options=options, renderers=renderers)


def run_sync(
    workflow: "str | Pipeline",
    input: Mapping[str, Any],
    *,
    options: Options,
    renderers: Sequence[Renderer] = (),
    run_id: str | None = None,
) -> Outcome:
    """`run`, in an event loop of its own."""
    return _alone(run(workflow, input, options=options, renderers=renderers, run_id=run_id))


def resume_sync(
    run: str,
    *,
    decisions: Sequence[Decision] = (),
    prompt: str | None = None,
    options: Options,
    renderers: Sequence[Renderer] = (),
) -> Outcome:
    """`resume`, in an event loop of its own."""
    return _alone(resume(run, decisions=decisions, prompt=prompt, options=options, renderers=renderers))


def _alone(work: Coroutine[Any, Any, Outcome]) -> Outcome:
    import asyncio  # here, because it costs the fast commands 20 ms

    from interlock.engine.driver.drive import signals_held

    with signals_held():
        return asyncio.run(work)


__all__ = ["Decision", "Options", "Outcome", "Renderer", "resume", "resume_sync", "run", "run_sync"]
