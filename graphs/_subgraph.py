"""_subgraph: a graph as a node of another. It is declared when a run first enters it, as many never are."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from langgraph.config import get_config
from langgraph.errors import GraphInterrupt
from langgraph.runtime import Runtime, get_runtime

from interlock.graphs._contract import channels_of, hints_of
from interlock.graphs._fusing import AT, DONE, Begun, Halted
from interlock.graphs._langgraph import (
    compiled_graph,
    fields_of,
    initial_values,
    is_under_way,
    state_before,
    with_saver,
)
from interlock.graphs._node_sources import digest_of
from interlock.nodes.effects import effect
from interlock.nodes.here import DRIVE, Drive
from interlock.state.deps import Deps
from interlock.state.errors import RunError, SetupError
from interlock.state.node import node

if TYPE_CHECKING:
    from interlock.graphs._pipeline import Compiled, Graph


Node = Callable[..., Awaitable[Any]]
Replayed = Callable[[], dict[str, Any] | None]


class Subgraph:
    def __init__(
        self,
        build: "Callable[[], Graph]",
        check: "Callable[[Graph], None]",
        labels: tuple[str, ...] = (),
        replayed: Replayed | None = None,
    ) -> None:
        """`check`: raises if the graph doesn't fit into its parent. `labels`: as a node's.

        `replayed`: returns the subgraph's recorded writes in a replay; None: run it.
        """
        self._build, self._check, self.labels = build, check, labels
        self._replayed = replayed or (lambda: None)

    @cached_property
    def graph(self) -> "Graph":
        graph = self._build()
        self._check(graph)
        return graph

    @property
    def compiled(self) -> "Compiled":
        return self.graph.compiled

    @cached_property
    def _initial(self) -> Mapping[str, Any]:
        return initial_values(self.compiled)

    @property
    def input_schema(self) -> type:
        return self.graph.input or self.graph.state

    async def run(self, state: dict[str, Any], _: Runtime[Deps]) -> dict[str, Any]:
        if (replayed := self._replayed()) is not None:
            return replayed
        config = get_config()
        compiled: Any = self.compiled
        inputs = {key: state[key] for key in channels_of(self.input_schema) if key in state}
        if is_under_way(config):
            return await self._driven(inputs, config)
        begun = self._taken_up(state) or await self.graph.wiring.begun(
            {**self._initial, **inputs}, get_runtime(Deps)
        )
        if not begun.targets:
            return self._returned(begun.written)
        # Graphs that ran in its superstep have left keys of their own: drop them.
        state = {key: value for key, value in begun.state.items() if key in compiled.channels}
        return await self._driven({**state, **state_before(begun.targets)}, config)

    async def _driven(self, given: dict[str, Any], config: Any) -> dict[str, Any]:
        """As `ainvoke`, which collects each node's update, too."""
        compiled: Any = self.compiled
        left: dict[str, Any] = {}
        keys = compiled.output_channels
        async for values in compiled.astream(given, config, stream_mode="values", output_keys=keys):
            left = values
        return left

    def _taken_up(self, state: dict[str, Any]) -> Begun | None:
        """Its progress in the superstep of the node that sent the payload, if any."""
        if AT not in state:
            return None
        runtime = get_runtime(Deps)
        if state[DONE] and (info := runtime.execution_info):
            runtime.context.steps.taken_up(info.task_id, info.checkpoint_ns, state[DONE])
        return Begun(state[AT], {**self._initial, **state}, {})

    async def whole(self, state: dict[str, Any], runtime: Runtime[Deps]) -> dict[str, Any]:
        """Run completely within another node's superstep. Raises `Halted`."""
        if (replayed := self._replayed()) is not None:
            return replayed
        inputs = {key: state[key] for key in channels_of(self.input_schema) if key in state}
        begun = await self.graph.wiring.begun({**self._initial, **inputs}, runtime)
        if begun.targets:
            raise Halted(begun.state, begun.targets)
        return self._returned(begun.written)

    def _returned(self, written: Mapping[str, Any]) -> dict[str, Any]:
        outputs = self.compiled.output_channels
        return {key: value for key, value in written.items() if key in outputs}

    def __getattr__(self, name: str) -> Any:
        """For LangGraph, which asks nested graphs of a waiting run for their state."""
        return getattr(self.compiled, name)


def langgraph_part(where: str, graph: Any, state: type) -> Node:
    """A graph of LangGraph as one node: it gets and gives the keys that both states have, and a kill repeats it whole.

    Raises `SetupError` if they share none.
    """
    compiled = with_saver(compiled_graph(graph), False, None)
    ours, theirs = hints_of(state), fields_of(compiled) or {}
    reads = tuple(key for key in theirs if key in ours)
    writes = tuple(key for key in compiled.output_channels if key in ours)
    if not (reads and writes):
        raise SetupError(f"{where} and {state.__name__} share no key, so nothing can be handed over.")

    # Its result is kept, so that a replay doesn't run it; of another code than today's there is none.
    name = f"graph#{digest_of(compiled)}"

    @node(reads=reads, writes=writes)
    async def part(state: Any, runtime: Runtime[Deps]) -> Any:
        return await effect(runtime, name, driven, state, runtime, idempotent=True)

    async def driven(state: Any, runtime: Runtime[Deps]) -> Any:
        token = DRIVE.set(Drive(runtime.context, asyncio.get_running_loop()))
        try:
            given = {key: state[key] for key in reads if key in state}
            left = await compiled.ainvoke(given, get_config())
        except GraphInterrupt as asked:
            raise RunError(
                f"{where} called interrupt(), which a graph of LangGraph can't do as a part. Ask with approve(…) or "
                "ask_person(…), or run that graph as a workflow of its own."
            ) from asked
        finally:
            DRIVE.reset(token)
        return {key: left[key] for key in writes if key in left}

    return part
