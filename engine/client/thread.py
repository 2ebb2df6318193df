"""thread: an event loop in a thread of its own, in which a client drives runs while its front end does other things."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from importlib import import_module
from typing import Any, TypeVar

from interlock.state.errors import InterlockError, bug

T = TypeVar("T")


class EngineThread:
    """Used from the front end's thread, by one drive at a time."""

    def __init__(self, before: Callable[[], None] = lambda: None) -> None:
        """`before`: called in the thread before what a run needs is imported."""
        self._before = before
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self.busy = False

    def begin(self) -> None:
        """Start the thread, which first imports what a run needs."""
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._before()
        import_module("interlock.engine.driver.runner")  # heavy: imported while the person types

        self._loop.run_forever()

    async def driven(self, work: Coroutine[Any, Any, T]) -> T:
        """Await a drive. Raises `InterlockError`."""
        self.busy = True
        try:
            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))
        except InterlockError:
            raise
        except Exception as error:
            raise bug(error) from error
        finally:
            self.busy = False

    def cancel(self, stop: Callable[[], bool]) -> None:
        """Call `stop` until it finds the drive, whose first step may be still to come."""
        if self.busy:
            self._loop.call_soon_threadsafe(lambda: stop() or self.cancel(stop))
