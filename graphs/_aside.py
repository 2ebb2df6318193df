"""_aside: what somebody's code does to its process is kept from ours: what it prints, and that it ends."""

import asyncio
import sys
from collections.abc import Coroutine, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TextIO, cast

_INSIDE: ContextVar[bool] = ContextVar("inside a foreign graph", default=False)
EXITS = (SystemExit, KeyboardInterrupt)
"""What ends the event loop when a task raises it. Signals don't: `engine/driver/stop.py` takes them."""


class ExitError(Exception):
    """Stands for one of `EXITS`, its cause, outside of the task that raised it."""

    def __init__(self, cause: BaseException) -> None:
        why = " ".join(str(cause).split())
        super().__init__(f"It exited ({type(cause).__name__}{why and f': {why}'}). That ends its run.")


@contextmanager
def kept_aside() -> Generator[None]:
    """Within it, and in tasks and threads started there, stdout is stderr, and an exit is an `ExitError`."""
    if not isinstance(sys.stdout, _Split):
        sys.stdout = cast(Any, _Split(sys.stdout))
    loop = asyncio.get_running_loop()
    if not isinstance(made := loop.get_task_factory(), _Tasks):
        loop.set_task_factory(_Tasks(made))
    token = _INSIDE.set(True)
    try:
        yield
    except EXITS as error:
        raise ExitError(error) from error
    finally:
        _INSIDE.reset(token)


class _Split:
    """Stands for stdout: writes from inside a graph, also from its threads, go to stderr; others as before."""

    def __init__(self, out: TextIO) -> None:
        self.out = out

    def __getattr__(self, name: str) -> Any:
        return getattr(sys.stderr if _INSIDE.get() else self.out, name)


class _Tasks:
    """Makes a loop's tasks as before, but those from inside a graph of a `_Kept`."""

    def __init__(self, before: Any) -> None:
        self.before: Any = before or _usual

    def __call__(self, loop: Any, coro: Any, **named: Any) -> Any:
        return self.before(loop, _Kept(coro) if _INSIDE.get() else coro, **named)


def _usual(loop: Any, coro: Any, **named: Any) -> Any:
    return asyncio.Task(coro, loop=loop, **named)


class _Kept(Coroutine[Any, Any, Any]):
    """A coroutine whose exit is an error that its task holds."""

    def __init__(self, own: Any) -> None:
        self.own = own

    def __getattr__(self, name: str) -> Any:
        return getattr(self.own, name)  # where it stands, for debuggers

    def __await__(self) -> Generator[Any, Any, Any]:
        return self.own.__await__()

    def send(self, value: Any) -> Any:
        try:
            return self.own.send(value)
        except EXITS as error:
            raise ExitError(error) from error

    def throw(self, *given: Any) -> Any:
        try:
            return self.own.throw(*given)
        except EXITS as error:
            raise ExitError(error) from error

    def close(self) -> None:
        self.own.close()
