"""_chain: pure nodes that follow each other share one superstep (`engine.md` 23).

The graph stays as it is declared; only at run time a pure node whose way on is decided runs on to the next one, as long
as that is pure, too. A kill repeats the whole chain, a request to stop ends it before its next node.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from langgraph.runtime import Runtime
from langgraph.types import Command

from interlock.graphs._checks import hints_of
from interlock.state.deps import Deps

_Run = Callable[[dict[str, Any], Runtime[Deps]], Awaitable[dict[str, Any]]]
_Router = Callable[[dict[str, Any], Runtime[Deps]], Awaitable[str]]


class _Node(NamedTuple):
    run: _Run
    keys: frozenset[str]
    reduces: bool
    """It writes a channel with a reducer: what follows would have to read what that makes of it."""


class _Choice(NamedTuple):
    router: _Router
    keys: frozenset[str]
    targets: Mapping[str, str]


class Chain:
    """The pure nodes of a graph, and their ways on."""

    def __init__(self) -> None:
        self._nodes: dict[str, _Node] = {}
        self._ways: dict[str, str | _Choice] = {}

    def add(self, name: str, run: _Run, reads: type, writes: type) -> None:
        reduces = any(callable(m) for h in hints_of(writes).values() for m in getattr(h, "__metadata__", ()))
        self._nodes[name] = _Node(run, frozenset(hints_of(reads)), reduces)

    def lead(self, source: str, target: str) -> None:
        self._ways[source] = target

    def choose(self, source: str, router: _Router, reads: type, targets: Mapping[str, str]) -> None:
        self._ways[source] = _Choice(router, frozenset(hints_of(reads)), targets)

    def goes_on(self, name: str) -> bool:
        """It decides itself where it leads, when it is reached by an edge of LangGraph's."""
        node = self._nodes.get(name)
        return node is not None and not node.reduces and isinstance(self._ways.get(name), _Choice)

    def starting_at(self, name: str) -> Callable[..., Awaitable[Any]]:
        """What LangGraph runs as this node."""

        async def node(state: dict[str, Any], runtime: Runtime[Deps]) -> Any:
            if self.goes_on(name):
                return await self._run(name, state, runtime)
            return await self._nodes[name].run(_part(state, self._nodes[name].keys), runtime)

        return partial(node)

    async def _run(self, at: str, state: dict[str, Any], runtime: Runtime[Deps]) -> Command[Any]:
        update: dict[str, Any] = {}
        seen = {at}
        while True:
            node = self._nodes[at]
            written = await node.run(_part(state, node.keys), runtime)
            update |= written
            state = {**state, **written}
            target = await self._way(at, state, runtime)
            if target in seen or not self._may_follow(target) or _must_stop(runtime):
                return Command(update=update, goto=target)
            at = target
            seen.add(at)

    async def _way(self, source: str, state: dict[str, Any], runtime: Runtime[Deps]) -> str:
        way = self._ways[source]
        if isinstance(way, str):
            return way
        return way.targets[await way.router(_part(state, way.keys), runtime)]

    def _may_follow(self, name: str) -> bool:
        node, way = self._nodes.get(name), self._ways.get(name)
        return node is not None and (isinstance(way, str) or (isinstance(way, _Choice) and not node.reduces))


async def went_on(_: Any) -> list[str]:
    """In place of the router of a node that goes on by itself."""
    return []


def _part(state: Mapping[str, Any], keys: frozenset[str]) -> dict[str, Any]:
    return {key: value for key, value in state.items() if key in keys}


def _must_stop(runtime: Runtime[Deps]) -> bool:
    return runtime.control is not None and runtime.control.drain_requested
