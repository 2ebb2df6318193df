"""work: what a conversation does, one thing at a time, what waits in line meanwhile, and the thread that drives."""

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from importlib import import_module
from typing import Any, TypeVar

from interlock.engine.client import Outcome
from interlock.engine.client.front_end import Front, Kind, Notice
from interlock.state.errors import STOPPED, InterlockError, as_bug_error

Work = Callable[[], Awaitable[None]]


class WorkLine:
    """Whoever shows it hears how each piece of work ends; an error is shown as one line."""

    status = ""
    """The run's status, such as `waiting` or `cancelled`; empty when it has ended or there is none."""
    busy = False
    _last: Outcome | None = None
    """How the last drive ended."""
    _stopped = False
    """Somebody stopped what was about to be driven."""

    def __init__(self, front: Front, take: Callable[[str], None]) -> None:
        self.front = front
        self.queue: deque[str] = deque()
        """Lines sent while the agent works."""
        self.take: Callable[[str], None] = take
        """Handles a line taken from the queue."""
        self.stop: Callable[[], None] | None = None
        """Stops whatever is running that isn't a run."""
        self._work: set[asyncio.Task[None]] = set()

    @property
    def at_work(self) -> bool:
        """Whether a run or a command is in progress."""
        return self.busy or bool(self._work)

    def do_in_place(self, work: Work) -> None:
        """Do something in place of the run: prompts wait for it, and `stop` ends it."""
        self._spawn(self._show_errors(work))

    def aside(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something beside the run; an error is shown as one line."""

        async def done() -> None:
            try:
                await work
            except InterlockError as error:
                self.failed(error)
            self.front.moved()
            self._next_in_line()

        self._task(done())

    def failed(self, error: InterlockError, /) -> None:
        self.tell("problem", str(error))

    def tell(self, kind: Kind, text: str, run: str = "") -> None:
        self.front.notice(Notice(kind, text, run))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self.busy, self._stopped = True, False
        self._task(work)

    def _task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    async def _show_errors(self, work: Work) -> None:
        """Show any error as one line and keep the conversation usable."""
        self.busy, well = True, False
        self.front.moved()
        try:
            await work()
            well = not (self._last and self._last.error and self._last.status not in STOPPED)
        except InterlockError as error:
            self.failed(error)
        except Exception as error:
            self.failed(as_bug_error(error))
        finally:
            self.busy, self.stop = False, None
            self.front.ended()
            self.front.moved()
        if well and self.status != "waiting":
            self._next_in_line()
        else:
            self._take_back()

    def _next_in_line(self) -> None:
        if self.queue and not self.busy:
            self.take(self.queue.popleft())

    def _take_back(self) -> None:
        if self.queue:
            self.front.take_back([*self.queue])
            self.queue.clear()


T = TypeVar("T")


class EngineThread:
    """Used from the front end's thread, by one drive at a time."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self.busy = False

    def begin(self) -> None:
        """Start the thread, which first imports what a run needs."""
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
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
            raise as_bug_error(error) from error
        finally:
            self.busy = False

    def cancel(self, stop: Callable[[], bool]) -> None:
        """Call `stop` until it finds the drive, whose first step may be still to come."""
        if self.busy:
            self._loop.call_soon_threadsafe(lambda: stop() or self.cancel(stop))
