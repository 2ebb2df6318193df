"""_factory: functions that make a LangGraph graph, as `langgraph.json` may name them: sync, async, context managers."""

import asyncio
import contextlib
import inspect
import threading
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from interlock.graphs._langgraph import compiled_graph, is_graph, server_runtime
from interlock.state.errors import SetupError

Factory = Callable[..., Any]


def is_factory(found: object) -> bool:
    """Whether it is a function: called, it should return a graph."""
    return inspect.isroutine(found)


@asynccontextmanager
async def opened(factory: Factory, config: Mapping[str, Any], store: Any = None) -> AsyncGenerator[Any]:
    """The compiled graph of one drive; a context manager stays open around it. Raises `SetupError` otherwise."""
    async with AsyncExitStack() as stack:
        made = _managed(factory)(*_arguments(factory, config, store))
        made = await made if inspect.isawaitable(made) else made
        if not is_graph(made) and hasattr(made, "__aenter__"):
            made = await stack.enter_async_context(made)
        elif not is_graph(made) and hasattr(made, "__enter__"):
            made = stack.enter_context(made)
        if not is_graph(made):
            raise SetupError(
                f"The function {factory.__name__!r} returned {made!r}; expected a StateGraph or an @entrypoint."
            )
        yield compiled_graph(made)


def outline(factory: Factory) -> Any:
    """Make the graph once, to see its input, nodes and types. Raises what the function raises, and `SetupError`."""
    found: list[Any] = []

    async def look() -> None:
        async with opened(factory, {"configurable": {}}) as graph:
            found.append(graph)

    def run() -> None:
        try:
            asyncio.run(look())
        except BaseException as error:  # raised again below, in the caller's thread
            found.append(error)

    thread = threading.Thread(target=run)  # the caller may have an event loop of its own
    thread.start()
    thread.join()
    if isinstance(found[-1], BaseException):
        raise found[-1]
    return found[0]


def _managed(factory: Factory) -> Factory:
    if inspect.isasyncgenfunction(factory):
        return asynccontextmanager(factory)
    return contextlib.contextmanager(factory) if inspect.isgeneratorfunction(factory) else factory


def _arguments(factory: Factory, config: Mapping[str, Any], store: Any) -> list[Any]:
    """The config, and LangGraph's server runtime for a parameter of that name or type."""
    given: list[Any] = []
    for parameter in inspect.signature(factory).parameters.values():
        if parameter.default is not parameter.empty or parameter.kind in _REST:
            continue
        kind = str(parameter.annotation)
        wants_runtime = parameter.name == "runtime" or "ServerRuntime" in kind
        given.append(server_runtime(store) if wants_runtime else dict(config))
    return given


_REST = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
