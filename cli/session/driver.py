"""driver: the session's engine thread: drives one run at a time on an event loop of its own."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from interlock.cli import quick_start
from interlock.cli.render.output import bug
from interlock.engine.options import Decision, Options, Outcome, Renderer
from interlock.state.errors import InterlockError

if TYPE_CHECKING:
    from interlock.engine.driver.drive import Stop
    from interlock.state.events import Event


class Driver:
    """Used from the session's thread. `renderer` receives events on a thread of the event bus."""

    def __init__(self, renderer: Renderer) -> None:
        self._renderer = renderer
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._stop: Stop | None = None
        self.busy = False

    def begin(self) -> None:
        """Start the thread, which first imports what a run needs."""
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        quick_start.begin()
        import_module("interlock.engine.driver.runner")  # heavy: imported while the person types

        self._loop.run_forever()

    async def start(self, workflow: str, prompt: str, options: Options) -> Outcome:
        """Start a new run. Raises `InterlockError`."""
        from interlock import engine

        def call(stop: "Stop") -> Awaitable[Outcome]:
            from interlock.graphs import pipeline

            inputs = {pipeline(workflow).prompt_field or "prompt": prompt} if prompt else {}
            return engine.run(workflow, inputs, options=options, renderers=[self._shown], stop=stop)

        return await self._driven(call)

    async def go_on(
        self, run: str, options: Options, prompt: str | None = None, decisions: Sequence[Decision] = ()
    ) -> Outcome:
        """Resume a run with decisions, with another prompt, or where it was interrupted. Raises `InterlockError`."""
        from interlock import engine

        return await self._driven(
            lambda stop: engine.resume(
                run,
                decisions=decisions,
                prompt=prompt,
                options=options,
                renderers=[self._shown],
                stop=stop,
                instead=True,
            )
        )

    def cancel(self) -> None:
        """Stop the drive cleanly; its outcome says so."""
        if self.busy:
            self._loop.call_soon_threadsafe(self._cancel)

    async def _driven(self, call: "Callable[[Stop], Awaitable[Outcome]]") -> Outcome:
        async def drive() -> Outcome:
            from interlock.engine.driver.drive import Stop

            self._stop = Stop()
            return await call(self._stop)

        self.busy = True
        try:
            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(drive(), self._loop))
        except InterlockError:
            raise
        except Exception as error:
            raise bug(error) from error
        finally:
            self.busy, self._stop = False, None

    def _cancel(self) -> None:
        if self._stop is not None:
            self._stop()
        elif self.busy:  # its first step comes right after this one
            self._loop.call_soon(self._cancel)

    def _shown(self, event: "Event") -> None:
        if event.type in ("finished", "tool_start"):
            quick_start.settle()
        self._renderer(event)
