"""_tap: shows the whole stream of a run's root graph to whoever drives it for a program (`cli/web/api`)."""

from collections.abc import AsyncIterator, Callable
from contextvars import ContextVar
from typing import Any

Tap = Callable[..., AsyncIterator[Any]]
"""Called with a compiled graph, its input, its config and the keywords of `astream`; yields the custom parts."""
TAP: ContextVar[Tap | None] = ContextVar("TAP", default=None)
"""Of the drives in this context; None: nobody looks."""


async def custom_parts(app: Any, graph_input: Any, config: Any, **given: Any) -> AsyncIterator[Any]:
    """Drive a graph, and yield what its nodes write to the stream."""
    if tap := TAP.get():
        async for part in tap(app, graph_input, config, **given):
            yield part
        return
    async for _, _, data in app.astream(graph_input, config, stream_mode=["custom"], subgraphs=True, **given):
        yield data


async def driven(app: Any, graph_input: Any, config: Any, **given: Any) -> None:
    """Drive a graph whose events are emitted elsewhere."""
    if TAP.get():
        parts = custom_parts(app, graph_input, config, **given)
    else:
        parts = app.astream(graph_input, config, stream_mode=[], **given)
    async for _ in parts:
        pass
