"""graph_changes: a declared graph, changed: with users' nodes at their places, or with a node or subgraph replaced.

Users' nodes go to five places of a graph that has turns and tools: edges into the node behind a place lead to the first
of them, and edges out of the node before it start from the last.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from inspect import signature
from itertools import pairwise
from types import MappingProxyType
from typing import Any, NamedTuple

from interlock.graphs import nested_graph_builder
from interlock.graphs.graph import Graph
from interlock.graphs.langgraph_node import Node
from interlock.graphs.pipeline import Pipeline
from interlock.graphs.supersteps import Replayed
from interlock.graphs.user_nodes import call_node, run_or_replay_node
from interlock.state.errors import UserError
from interlock.state.node import attach_node_spec, find_node_spec
from interlock.state.text import did_you_mean

_Declare = Callable[..., None]
"""`Graph.node`, `Graph.edge` and their like."""


PLACES = {
    "before_prompt": ("before", "context"),
    "before_model": ("before", "turn"),
    "after_model": ("after", "turn"),
    "before_tool": ("before", "tools"),
    "after_tool": ("after", "tools"),
}
"""Name → the subgraph of the graph, and the side of it."""
COMPRESS = "compress"
"""Allowed after tools in place of a node: compresses the conversation there too, once it is long."""


class Processor(NamedTuple):
    """A user's node, and its place."""

    place: str
    name: str
    """The node's name in the graph."""
    node: Node | None
    """None: `compress`."""


def place_processors(pipeline: Pipeline, processors: tuple[Processor, ...]) -> Pipeline:
    """The workflow with the processors it has a place for. Raises `SetupError` for a node that doesn't fit."""
    subgraphs = {
        arguments[0]
        for declare, arguments in pipeline.build_uncompiled_graph().declarations
        if declare is Graph.subgraph
    }
    placed = tuple(p for p in processors if PLACES[p.place][1] in subgraphs)
    if not placed:
        return pipeline
    return replace(pipeline, build=_wrap_build_with_processors(pipeline.build, placed))


@cache
def _wrap_build_with_processors(
    build: Callable[..., Graph], placed: tuple[Processor, ...]
) -> Callable[..., Graph]:
    return wrap_build(build, lambda graph: _insert_processors(graph, placed))


def wrap_build(build: Callable[..., Graph], change: Callable[[Graph], Graph]) -> Callable[..., Graph]:
    """Wrap a pipeline's `build` so that its graph is changed."""
    if "depth" not in signature(build).parameters:
        return lambda: change(build())

    # If the caller gives no depth, the original's default applies.
    def nested(depth: int = signature(build).parameters["depth"].default) -> Graph:
        return change(build(depth))

    return nested


def _insert_processors(graph: Graph, processors: Sequence[Processor]) -> Graph:
    first: dict[str, str] = {}
    last: dict[str, str] = {}
    between: list[tuple[str, str]] = []
    for place, (side, subgraph) in PLACES.items():
        names = [p.name for p in processors if p.place == place]
        if not names:
            continue
        way = [*names, subgraph] if side == "before" else [subgraph, *names]
        between += pairwise(way)
        (first if side == "before" else last)[subgraph] = names[0] if side == "before" else names[-1]

    def redirect_edges(declare: _Declare, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        if declare is Graph.edge:
            source, target = arguments
            return last.get(source, source), first.get(target, target)
        if declare is Graph.choose:
            source, *router, targets = arguments
            entered = {label: first.get(target, target) for label, target in targets.items()}
            return last.get(source, source), *router, entered
        return arguments

    made = _rebuild_graph(graph, redirect_edges, {p.name: p.node for p in processors})
    for source, target in between:
        made.edge(source, target)
    return made


def replace_node_when(
    pipeline: Pipeline, place: str, replacement: Node, should_replace: Callable[[], bool]
) -> Pipeline:
    """Run `replacement` instead of the node at `place` whenever `should_replace()` says so.

    `place`: names the subgraphs around it, too: `turn/begin`.
    Raises `UserError` if there is no such node or its labels differ; `SetupError` if the state lacks its keys.
    """
    made = replace(
        pipeline,
        build=wrap_build(
            pipeline.build, lambda graph: _rebuild_with_node(graph, place, replacement, should_replace)
        ),
    )
    made.build_uncompiled_graph()
    return made


def nondeterministic_nodes_and_subgraphs(pipeline: Pipeline) -> dict[str, Node | None]:
    """Its own nodes that read what may change later, with their functions, and its subgraphs that do, with None."""
    declared = pipeline.build_uncompiled_graph().declarations
    subgraphs = [
        arguments[0] for declare, arguments in declared if declare is Graph.subgraph and arguments[2]
    ]
    nodes = [arguments for declare, arguments in declared if declare is Graph.node]
    return {
        **dict.fromkeys(subgraphs),
        **{
            name: function
            for name, function in nodes
            if (spec := find_node_spec(function)) and spec.nondeterministic
        },
    }


def replay_subgraph(pipeline: Pipeline, name: str, replayed: Replayed) -> Pipeline:
    """Use the recorded writes of subgraph `name` instead of running it, while there are any."""

    def replay_declaration(declare: _Declare, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        taken = declare is Graph.subgraph and arguments[0] == name
        return (*arguments[:3], replayed) if taken else arguments

    return replace(
        pipeline, build=wrap_build(pipeline.build, lambda graph: _rebuild_graph(graph, replay_declaration))
    )


def _rebuild_graph(
    graph: Graph,
    change: Callable[[_Declare, tuple[Any, ...]], tuple[Any, ...]],
    nodes: Mapping[str, Node | None] = MappingProxyType({}),
) -> Graph:
    """The same graph, but with changed arguments of some declarations, and with these nodes; None: `compress`."""
    made = replace(graph)
    for name, function in nodes.items():
        if function is None:
            made.subgraph(name, nested_graph_builder("compress"))
        else:
            made.node(name, function)
    for declare, arguments in graph.declarations:
        declare(made, *change(declare, arguments))
    made.bounds |= graph.bounds
    return made


def _rebuild_with_node(
    graph: Graph, place: str, replacement: Node, should_replace: Callable[[], bool]
) -> Graph:
    name, _, inner = place.partition("/")
    name = graph.renamed.get(name, name)
    kind = Graph.subgraph if inner else Graph.node
    names = [arguments[0] for declare, arguments in graph.declarations if declare is kind]
    if name not in names:
        hint = did_you_mean(name, names)
        what = "subgraph" if inner else "node"
        has = ", ".join(names) or "none"
        raise UserError(f"{graph.name!r} has no {what} {name!r}.{hint} It has the {what}s: {has}.")

    def replace_node_declaration(declare: _Declare, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        if declare is not kind or arguments[0] != name:
            return arguments
        if not inner:
            return name, _make_switch_node(f"{graph.name}.{name}", arguments[1], replacement, should_replace)
        subgraph: Graph = arguments[1] if isinstance(arguments[1], Graph) else arguments[1]()
        return name, _rebuild_with_node(subgraph, inner, replacement, should_replace), *arguments[2:]

    return _rebuild_graph(graph, replace_node_declaration)


def _make_switch_node(where: str, old: Node, new: Node, should_replace: Callable[[], bool]) -> Node:
    was, now = find_node_spec(old), find_node_spec(new)
    assert was is not None and now is not None
    if {*was.labels} != {*now.labels}:
        labels = [", ".join(spec.labels) or "none" for spec in (was, now)]
        raise UserError(
            f"{where} has the labels {labels[0]}, the other function {labels[1]}. Expected the same."
        )

    async def either(state: Any, runtime: Any) -> Any:
        return await (
            call_node(new, state, runtime) if should_replace() else run_or_replay_node(old, state, runtime)
        )

    both = replace(
        now,
        reads=(*dict.fromkeys((*was.reads, *now.reads)),),
        writes=(*dict.fromkeys((*was.writes, *now.writes)),),
        nondeterministic=was.nondeterministic,
    )
    return attach_node_spec(either, both)
