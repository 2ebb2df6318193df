"""_chain: pure nodes that follow each other share one superstep (`engine.md` 23).

The graph stays as it is declared; only at run time a pure node whose way on is decided runs on to the next one, as long
as that is pure, too. A kill repeats the whole chain, a request to stop ends it before its next node.

A graph inside another begins as a chain in the superstep of the node that it is, and one node of it may do what is
recorded and found again. Where that doesn't lead to its end, LangGraph takes it on from the node that was reached.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.graph import END, START
from langgraph.runtime import Runtime, get_runtime
from langgraph.types import Command

from interlock.graphs._checks import hints_of
from interlock.state.deps import Deps
from interlock.state.node import inside

_Run = Callable[[dict[str, Any], Runtime[Deps]], Awaitable[dict[str, Any]]]
_Router = Callable[[dict[str, Any], Runtime[Deps]], Awaitable[str]]


class _Node(NamedTuple):
    run: _Run
    keys: frozenset[str]
    reducers: Mapping[str, Callable[[Any, Any], Any]]
    """Of the channels that it writes; what follows reads what they make of it."""
    pure: bool
    """Else what it does is recorded, and found again."""


class _Choice(NamedTuple):
    router: _Router
    keys: frozenset[str]
    targets: Mapping[str, str]


class Chain:
    """The nodes of a graph that may share a superstep, and their ways on."""

    def __init__(self) -> None:
        self._nodes: dict[str, _Node] = {}
        self._ways: dict[str, str | _Choice] = {}

    def add(self, name: str, run: _Run, reads: type, writes: type, *, pure: bool) -> None:
        noted = ((key, m) for key, h in hints_of(writes).items() for m in getattr(h, "__metadata__", ()))
        reducers = {key: m for key, m in noted if callable(m)}
        self._nodes[name] = _Node(run, frozenset(hints_of(reads)), reducers, pure)

    def lead(self, source: str, target: str) -> None:
        self._ways[source] = target

    def choose(self, source: str, router: _Router, reads: type, targets: Mapping[str, str]) -> None:
        self._ways[source] = _Choice(router, frozenset(hints_of(reads)), targets)

    def goes_on(self, name: str) -> bool:
        """It decides itself where it leads, when it is reached by an edge of LangGraph's."""
        node = self._nodes.get(name)
        return (
            node is not None and node.pure and not node.reducers and isinstance(self._ways.get(name), _Choice)
        )

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
        if node is None or not node.pure:
            return False
        return isinstance(way, str) or (isinstance(way, _Choice) and not node.reducers)

    async def begun(self, state: dict[str, Any], runtime: Runtime[Deps]) -> "_Begun":
        """As far as the graph comes without a superstep of its own."""
        written: dict[str, Any] = {}
        seen: set[str] = set()
        at, recorded = await self._way(START, state, runtime) if START in self._ways else "", False
        while at != END and at not in seen and not _must_stop(runtime):
            node = self._nodes.get(at)
            if node is None or at not in self._ways or (recorded and not node.pure):
                break
            update = await node.run(_part(state, node.keys), _within(runtime, at))
            for key in node.reducers.keys() & update.keys():
                update[key] = node.reducers[key](state[key], update[key])
            written |= update
            state = {**state, **update}
            seen.add(at)
            recorded = recorded or not node.pure
            at = await self._way(at, state, _within(runtime, at))
        return _Begun(at, state, written)


class _Begun(NamedTuple):
    at: str
    """The node that comes next."""
    state: dict[str, Any]
    written: dict[str, Any]


class Part(Runnable[Any, Any]):
    """What LangGraph runs as a node that is a graph."""

    def __init__(self, chain: Chain, compiled: Any, given: type) -> None:
        """`compiled`: any, for the types of LangGraph's channels aren't told."""
        self._chain, self._compiled = chain, compiled
        self._keys = frozenset(hints_of(given))
        # Channels with a reducer hold something from the beginning.
        self._empty = {key: c.get() for key, c in compiled.channels.items() if c.is_available()}

    def invoke(self, input: Any, config: RunnableConfig | None = None, **_: Any) -> Any:
        raise NotImplementedError("Graphs are driven by `ainvoke`.")

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **_: Any) -> Any:
        state = _part(input, self._keys)
        if _is_under_way(config):
            return await self._compiled.ainvoke(state, config)
        begun = await self._chain.begun({**self._empty, **state}, get_runtime(Deps))
        if begun.at == END:
            outputs = self._compiled.output_channels
            return {key: value for key, value in begun.written.items() if key in outputs}
        # The channel by which LangGraph's edges lead to a node.
        return await self._compiled.ainvoke({**begun.state, f"branch:to:{begun.at}": None}, config)


def takes_up(compiled: Any) -> None:
    """Its input is a state and the node to begin with, not a state for START."""
    compiled.input_channels = [*compiled.channels]


def _is_under_way(config: RunnableConfig | None) -> bool:
    """LangGraph has a checkpoint of this very task's graph."""
    known = (config or {}).get("configurable", {})
    saver = known.get("__pregel_checkpointer")
    if saver is None:
        return False
    where = {"thread_id": known["thread_id"], "checkpoint_ns": known["checkpoint_ns"]}
    return saver.get_tuple({"configurable": where}) is not None


def _within(runtime: Runtime[Deps], name: str) -> Runtime[Deps]:
    """The runtime of a node of a graph that runs in the superstep of the node that it is."""
    info = runtime.execution_info
    if info is None:
        return runtime
    task = inside(info.task_id)
    return runtime.override(
        execution_info=replace(info, task_id=task, checkpoint_ns=f"{info.checkpoint_ns}|{name}:{task}")
    )


async def went_on(_: Any) -> list[str]:
    """In place of the router of a node that goes on by itself."""
    return []


def _part(state: Mapping[str, Any], keys: frozenset[str]) -> dict[str, Any]:
    return {key: value for key, value in state.items() if key in keys}


def _must_stop(runtime: Runtime[Deps]) -> bool:
    return runtime.control is not None and runtime.control.drain_requested
