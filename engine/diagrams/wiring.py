"""wiring: nodes and edges as a compiled graph really has them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from langgraph.graph import END, START

from interlock.graphs._part import Part
from interlock.graphs._pipeline import Branch, Compiled

EACH = "one each"
NONE = "none"


@dataclass(frozen=True)
class Wire:
    """One declared way from node to node, within one graph."""

    source: str
    target: str
    labels: tuple[str, ...] = ()
    each: bool = False


def parts(graph: Compiled) -> dict[str, Compiled]:
    """The nodes that are graphs themselves."""
    nodes: dict[str, Any] = graph.nodes
    return {
        name: part.compiled
        for name in graph.builder.nodes
        for part in nodes[name].subgraphs
        if isinstance(part, Part)
    }


def connections(graph: Compiled) -> list[Wire]:
    """Every edge once, in the order in which the nodes were declared; labels to one target are joined."""
    merged: dict[tuple[str, str], Wire] = {}
    for wire in _declared(graph):
        old = merged.get((wire.source, wire.target), wire)
        labels = tuple(dict.fromkeys(old.labels + wire.labels))
        merged[wire.source, wire.target] = Wire(wire.source, wire.target, labels, old.each or wire.each)
    place = {
        START: -1,
        **{name: i for i, name in enumerate(graph.builder.nodes)},
        END: len(graph.builder.nodes),
    }
    return sorted(merged.values(), key=lambda w: (place[w.source], place[w.target]))


def _declared(graph: Compiled) -> Iterator[Wire]:
    for source, target in graph.builder.edges:
        yield Wire(source, target)
    for sources, target in graph.builder.waiting_edges:
        for source in sources:
            yield Wire(source, target)
    for source, branches in graph.builder.branches.items():
        for branch in branches.values():
            ends = {str(label): target for label, target in (branch.ends or {}).items()}
            if isinstance(branch.path, Branch) and branch.path.sends:
                # `Graph.fan_out` names the target of its payloads first, then where to go without any.
                for i, target in enumerate(ends.values()):
                    yield Wire(source, target, (NONE if i else EACH,), each=not i)
            else:
                for label, target in ends.items():
                    yield Wire(source, target, (label,))


def places(graph: Compiled, place: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Compiled]]:
    """The graph and every graph inside it, each with the names of the nodes around it."""
    yield place, graph
    for name, part in parts(graph).items():
        yield from places(part, (*place, name))
