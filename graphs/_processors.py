"""_processors: users' own nodes at five places of a graph that has turns and tools.

The graph is declared once more with them: what led to the node behind a place leads to the first of them, and what led
on from the node before it leads on from the last.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from inspect import signature
from itertools import pairwise
from typing import Any, NamedTuple, cast

from interlock.graphs import compress
from interlock.graphs._pipeline import Graph, Node, Pipeline

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
    made = Graph(graph.name, graph.state, input=graph.input, output=graph.output, retired=graph.retired)
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
