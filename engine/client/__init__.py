"""client: everything that a front end does with runs: start, decide, stop, look, follow, travel.

A front end imports nothing else of the engine. It turns events, views and words (`requests.py`) into something for its
medium, and says who is asked (`Asker`); what follows a drive happens here. Nothing heavy is imported before a run is
driven, and a front end that only looks needs no more than sqlite3.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interlock.engine.client.views import Views
from interlock.engine.driver.settling import Asker, at_once, settled
from interlock.engine.options import Decision, Options, Outcome, Pending, Renderer
from interlock.engine.read import ENDED, STATUSES, Request, RunRow, Step
from interlock.engine.read.calls import Agent, Call
from interlock.engine.store import diagnosed, state_home

if TYPE_CHECKING:
    from interlock.engine.driver.drive import Stop
    from interlock.engine.travel.fork import Forked

__all__ = [
    "ENDED",
    "STATUSES",
    "Agent",
    "Asker",
    "Call",
    "Client",
    "Decision",
    "Options",
    "Outcome",
    "Pending",
    "Renderer",
    "Request",
    "RunRow",
    "Step",
    "state_home",
    "stopper",
]


class Client(Views):
    """Runs, for one front end. `options` are those of each drive; a run that goes on keeps its own."""

    async def start(
        self,
        workflow: str,
        input: Mapping[str, Any],
        *,
        renderers: Sequence[Renderer] = (),
        asker: Asker | None = None,
        stop: "Stop | None" = None,
    ) -> Outcome:
        """Start a run and drive it until it is over, or what waits is left for later. Raises `InterlockError`.

        `asker`: who decides what comes up; without one the run parks. `stop` ends it early; without it, signals do.
        """
        from interlock import engine

        outcome = await engine.run(workflow, input, options=self.options, renderers=renderers, stop=stop)
        return await self.settle(outcome, asker, renderers=renderers, stop=stop)

    async def go_on(
        self,
        run: str,
        prompt: str | None = None,
        decisions: Sequence[Decision] = (),
        *,
        renderers: Sequence[Renderer] = (),
        asker: Asker | None = None,
        stop: "Stop | None" = None,
    ) -> Outcome:
        """Resume a run: with decisions, with another prompt, or where it was cut off."""
        outcome = await self._resume(run, self.options, renderers, stop, decisions, prompt)
        return await self.settle(outcome, asker, renderers=renderers, stop=stop)

    async def settle(
        self,
        outcome: Outcome,
        asker: Asker | None,
        *,
        renderers: Sequence[Renderer] = (),
        stop: "Stop | None" = None,
    ) -> Outcome:
        """Ask about what waits, and go on, for as long as somebody decides."""

        async def resume(run: str, decisions: Sequence[Decision]) -> Outcome:
            return await self._resume(run, _ongoing(self.options), renderers, stop, decisions)

        if asker is None or (stop and stop.why):
            return outcome
        return await settled(self.home, outcome, asker, resume)

    def start_sync(
        self,
        workflow: str,
        input: Mapping[str, Any],
        *,
        renderers: Sequence[Renderer] = (),
        asker: Asker | None = None,
    ) -> Outcome:
        """`start` without an event loop: each drive has its own, and who is asked may block."""
        from interlock import engine

        outcome = engine.run_sync(workflow, input, options=self.options, renderers=renderers)
        return self._settled_sync(outcome, asker, renderers)

    def go_on_sync(
        self,
        run: str,
        prompt: str | None = None,
        decisions: Sequence[Decision] = (),
        *,
        renderers: Sequence[Renderer] = (),
        asker: Asker | None = None,
    ) -> Outcome:
        """`go_on` without an event loop."""
        from interlock import engine

        outcome = engine.resume_sync(
            run, prompt=prompt, decisions=decisions, options=self.options, renderers=renderers
        )
        return self._settled_sync(outcome, asker, renderers)

    def _settled_sync(self, outcome: Outcome, asker: Asker | None, renderers: Sequence[Renderer]) -> Outcome:
        async def resume(run: str, decisions: Sequence[Decision]) -> Outcome:
            from interlock import engine

            options = _ongoing(self.options)
            return engine.resume_sync(run, decisions=decisions, options=options, renderers=renderers)

        return at_once(settled(self.home, outcome, asker, resume)) if asker else outcome

    async def _resume(
        self,
        run: str,
        options: Options,
        renderers: Sequence[Renderer],
        stop: "Stop | None",
        decisions: Sequence[Decision],
        prompt: str | None = None,
    ) -> Outcome:
        from interlock import engine

        return await engine.resume(
            run, decisions=decisions, prompt=prompt, options=options, renderers=renderers, stop=stop
        )

    def diagnosed(self) -> AbstractContextManager[None]:
        """Turns an exception of the store or the disk into an error that says what to do."""
        return diagnosed(self.home / "interlock.db")

    def stopped_by_signals(self, stop: Callable[[], None]) -> AbstractContextManager[None]:
        """Calls `stop` at the first Ctrl-C or SIGTERM, for a front end with many drives; a second ends the process."""
        from interlock.engine.driver.drive import stop_on_signals

        return stop_on_signals(stop)

    def remove(self, run: str) -> None:
        """Delete what a run recorded, not what it changed. Raises `UserError` while it is driven."""
        from interlock.engine.store.runs import remove_run

        remove_run(self.home, run)

    def fork(
        self, run: str, step: int | None = None, *, workspace: Path | None = None, in_place: bool = False
    ) -> "Forked":
        """A run that shares a run's past up to a root step, by default all of it; the parent never changes.

        It works in `workspace`, in place, or by default in a new folder beside the run's own. Raises `UserError`.
        """
        from interlock.engine.travel.fork import fork_run

        step = self.checkpoints(run)[-1].step if step is None else step
        return fork_run(self.home, run, step, workspace=workspace, in_place=in_place)


def stopper() -> "Stop":
    """What stops a drive that it is given to, called in the drive's event loop; `why` says that it was."""
    from interlock.engine.driver.drive import Stop

    return Stop()


def _ongoing(options: Options) -> Options:
    """Options for going on with a run after a decision: it keeps its modes, which may have changed since."""
    return replace(options, approval_mode=None, mode=None, attach=(), notes=(), compress=False)
