"""_rewired: a workflow whose graph is declared once more: with users' own nodes, or with another in a node's place.

Users' nodes stand at five places of a graph that has turns and tools: what led to the node behind a place leads to the
first of them, and what led on from the node before it leads on from the last.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from functools import cache
from inspect import signature
from itertools import pairwise
from typing import Any, NamedTuple, cast

from interlock.graphs import compress
from interlock.graphs._part import Told
from interlock.graphs._pipeline import Graph, Node, Pipeline
from interlock.graphs._wrap import called
from interlock.state.errors import UserError
from interlock.state.node import node, spec_of

PLACES = {
    "before_prompt": ("before", "context"),
    "before_model": ("before", "turn"),
    "after_model": ("after", "turn"),
    "before_tool": ("before", "tools"),
    "after_tool": ("after", "tools"),
}
"""Name → on which side of which part of the graph it is."""
COMPRESS = "compress"
"""May stand in the place of a node, after tools: the conversation is compressed there, too, once it is long."""


class Processor(NamedTuple):
    """A node of a user's, and where it stands."""

    place: str
    name: str
    """The node's in the graph."""
    node: Node | None
    """None: `compress`."""


def with_processors(chosen: Pipeline, processors: tuple[Processor, ...]) -> Pipeline:
    """The workflow with those of them whose place it has. Raises `SetupError` for a node that doesn't fit its state."""
    parts = {arguments[0] for declare, arguments in chosen.declared().declared if declare is Graph.part}
    placed = tuple(p for p in processors if PLACES[p.place][1] in parts)
    if not placed:
        return chosen
    return replace(chosen, build=_built(chosen.build, placed))


@cache
def _built(build: Callable[..., Graph], placed: tuple[Processor, ...]) -> Callable[..., Graph]:
    return built(build, lambda graph: _placed(graph, placed))


def built(build: Callable[..., Graph], change: Callable[[Graph], Graph]) -> Callable[..., Graph]:
    """A `build` of a pipeline whose graph is changed."""
    if "depth" not in signature(build).parameters:
        return lambda: change(build())

    # Where nobody says how many levels there are, its own default counts.
    def nested(depth: int = signature(build).parameters["depth"].default) -> Graph:
        return change(build(depth))

    return nested


def _placed(graph: Graph, processors: Sequence[Processor]) -> Graph:
    made = _blank(graph)
    first: dict[str, str] = {}
    last: dict[str, str] = {}
    between: list[tuple[str, str]] = []
    for place, (side, part) in PLACES.items():
        names = [p.name for p in processors if p.place == place]
        if not names:
            continue
        way = [*names, part] if side == "before" else [part, *names]
        between += pairwise(way)
        (first if side == "before" else last)[part] = names[0] if side == "before" else names[-1]
    for processor in processors:
        if processor.node is None:
            made.part(processor.name, compress.build)
        else:
            made.node(processor.name, processor.node)
    for declare, arguments in graph.declared:
        if declare is Graph.edge:
            source, target = cast(tuple[str, str], arguments)
            made.edge(last.get(source, source), first.get(target, target))
        elif declare is Graph.choose:
            _choose(made, first, last, *arguments)
        else:
            declare(made, *arguments)
    for source, target in between:
        made.edge(source, target)
    return made


def _choose(
    made: Graph,
    first: Mapping[str, str],
    last: Mapping[str, str],
    source: str,
    router: Any,
    reads: Sequence[str],
    labels: Sequence[str],
    targets: Mapping[str, str],
) -> None:
    entered = {label: first.get(target, target) for label, target in targets.items()}
    made.choose(last.get(source, source), router, reads, labels, entered)


def with_node(chosen: Pipeline, place: str, other: Node, due: Callable[[], bool]) -> Pipeline:
    """`place`: a node's name, behind the names of the parts that it is in: `turn/begin`. `due`: it is asked instead.

    Raises `UserError` where there is no such node, or where the edges behind it map other labels; `SetupError` where
    the state has no such keys.
    """
    made = replace(chosen, build=built(chosen.build, lambda graph: _swapped(graph, place, other, due)))
    made.declared()
    return made


def outside(chosen: Pipeline) -> dict[str, Node | None]:
    """The nodes of its own that read what may be another later, with their functions; its parts that do, without."""
    declared = chosen.declared().declared
    parts = [arguments[0] for declare, arguments in declared if declare is Graph.part and arguments[3]]
    nodes = [arguments for declare, arguments in declared if declare is Graph.node]
    return {
        **dict.fromkeys(parts),
        **{name: function for name, function in nodes if (spec := spec_of(function)) and spec.outside},
    }


def with_told(chosen: Pipeline, name: str, told: Told) -> Pipeline:
    """With what its part `name` wrote once in the place of the part, as long as there is something."""

    def change(graph: Graph) -> Graph:
        made = _blank(graph)
        for declare, arguments in graph.declared:
            if declare is Graph.part and arguments[0] == name:
                arguments = (*arguments[:4], told)
            declare(made, *arguments)
        made.bounds |= graph.bounds
        return made

    return replace(chosen, build=built(chosen.build, change))


def _blank(graph: Graph) -> Graph:
    return Graph(
        graph.name,
        graph.state,
        input=graph.input,
        output=graph.output,
        retired=graph.retired,
        labels=graph.labels,
        asks=graph.asks,
    )


def _swapped(graph: Graph, place: str, other: Node, due: Callable[[], bool]) -> Graph:
    name, _, inner = place.partition("/")
    kind = Graph.part if inner else Graph.node
    names = [arguments[0] for declare, arguments in graph.declared if declare is kind]
    if name not in names:
        hint = f" Did you mean {near[0]!r}?" if (near := get_close_matches(name, names, 1, 0.5)) else ""
        what = "part" if inner else "node"
        has = ", ".join(names) or "none"
        raise UserError(f"{graph.name!r} has no {what} {name!r}.{hint} It has the {what}s: {has}.")
    made = _blank(graph)
    for declare, arguments in graph.declared:
        if declare is Graph.node and (name, "") == (arguments[0], inner):
            made.node(name, _either(f"{graph.name}.{name}", arguments[1], other, due))
        elif declare is Graph.part and arguments[0] == name:
            part: Graph = arguments[1] if isinstance(arguments[1], Graph) else arguments[1]()
            made.part(name, _swapped(part, inner, other, due), *arguments[2:])
        else:
            declare(made, *arguments)
    made.bounds |= graph.bounds
    return made


def _either(where: str, old: Node, new: Node, due: Callable[[], bool]) -> Node:
    was, now = spec_of(old), spec_of(new)
    assert was is not None and now is not None
    if {*was.labels} != {*now.labels}:
        told = [", ".join(spec.labels) or "none" for spec in (was, now)]
        raise UserError(f"{where} has the labels {told[0]}, the other function {told[1]}. Expected the same.")

    @node(
        reads=(*dict.fromkeys((*was.reads, *now.reads)),),
        writes=(*dict.fromkeys((*was.writes, *now.writes)),),
        labels=now.labels,
        timeout_s=now.timeout_s,
        retries=now.retries,
        retry_wait_s=now.retry_wait_s,
        pure=was.pure,
        recorded=was.recorded,
        outside=was.outside,
    )
    async def either(state: Any, runtime: Any) -> Any:
        return await called(new if due() else old, state, runtime)

    return either
