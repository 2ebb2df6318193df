"""blocking: a client that can only block is asked in a daemon thread, so that a stop, and the end of the process, need
not wait for its server's next byte.
"""

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from contextvars import copy_context
from typing import Any, TypeVar

T = TypeVar("T")


async def iterate_in_thread(begin: Callable[[], Iterator[T]]) -> AsyncGenerator[T]:
    """Yield what the iterator yields that `begin` makes, both called in the thread. Raises what they raise.

    Once it is closed, the thread ends with the iterator's next item.
    """
    loop, is_closed = asyncio.get_running_loop(), threading.Event()
    items: asyncio.Queue[tuple[bool, Any]] = asyncio.Queue()
    """Whether it is the last, and an item, or what was raised; the last of an iterator that ended is None."""

    def tell(is_last: bool, item: Any) -> bool:
        if not is_closed.is_set():
            try:
                loop.call_soon_threadsafe(items.put_nowait, (is_last, item))
            except RuntimeError:  # the loop is closed: nobody waits any more
                is_closed.set()
        return not is_closed.is_set()

    def read() -> None:
        try:
            for item in begin():
                if not tell(False, item):
                    return
        except BaseException as error:
            tell(True, error)
        else:
            tell(True, None)

    threading.Thread(target=copy_context().run, args=(read,), daemon=True).start()
    try:
        while True:
            is_last, item = await items.get()
            if not is_last:
                yield item
            elif item is None:
                return
            else:
                raise item
    finally:
        is_closed.set()


async def call_in_thread(ask: Callable[[], T]) -> T:
    """Return what a blocking function returns. Raises what it raises."""
    (answer,) = [one async for one in iterate_in_thread(lambda: iter([ask()]))]
    return answer
