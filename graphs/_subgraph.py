"""_subgraph: a graph as a node of another. It is declared when a run first enters it, as many never are."""

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from langgraph.config import get_config
from langgraph.runtime import Runtime, get_runtime

from interlock.graphs._contract import channels_of
from interlock.graphs._fusing import AT, DONE, Begun, Halted
from interlock.graphs._langgraph import initial_values, is_under_way, state_before
from interlock.state.deps import Deps

if TYPE_CHECKING:
    from interlock.graphs._pipeline import Compiled, Graph


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
            return await compiled.ainvoke(inputs, config) or {}
        begun = self._taken_up(state) or await self.graph.wiring.begun(
            {**initial_values(self.compiled), **inputs}, get_runtime(Deps)
        )
        if not begun.targets:
            return self._returned(begun.written)
        # Graphs that ran in its superstep have left keys of their own: drop them.
        state = {key: value for key, value in begun.state.items() if key in compiled.channels}
        return await compiled.ainvoke({**state, **state_before(begun.targets)}, config) or {}

    def _taken_up(self, state: dict[str, Any]) -> Begun | None:
        """Its progress in the superstep of the node that sent the payload, if any."""
        if AT not in state:
            return None
        runtime = get_runtime(Deps)
        if state[DONE] and (info := runtime.execution_info):
            runtime.context.steps.taken_up(info.task_id, info.checkpoint_ns, state[DONE])
        return Begun(state[AT], {**initial_values(self.compiled), **state}, {})

    async def whole(self, state: dict[str, Any], runtime: Runtime[Deps]) -> dict[str, Any]:
        """Run completely within another node's superstep. Raises `Halted`."""
        if (replayed := self._replayed()) is not None:
            return replayed
        inputs = {key: state[key] for key in channels_of(self.input_schema) if key in state}
        begun = await self.graph.wiring.begun({**initial_values(self.compiled), **inputs}, runtime)
        if begun.targets:
            raise Halted(begun.state, begun.targets)
        return self._returned(begun.written)

    def _returned(self, written: Mapping[str, Any]) -> dict[str, Any]:
        outputs = self.compiled.output_channels
        return {key: value for key, value in written.items() if key in outputs}

    def __getattr__(self, name: str) -> Any:
        """For LangGraph, which asks nested graphs of a waiting run for their state."""
        return getattr(self.compiled, name)


class Subgraphs(Mapping[str, "Graph"]):
    """The nested graphs of a graph, by node name."""

    def __init__(self) -> None:
        self.declared: dict[str, Subgraph] = {}

    def __getitem__(self, name: str) -> "Graph":
        return self.declared[name].graph

    def __iter__(self) -> Iterator[str]:
        return iter(self.declared)

    def __len__(self) -> int:
        return len(self.declared)
