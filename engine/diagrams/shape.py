"""shape: a diagram as data: nodes and edges as a compiled graph, or a statechart, really has them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from langgraph.graph import END, START
from statemachine import State, StateChart

from interlock.engine.diagrams.path import Place, RunPath
from interlock.graphs._chain import Branch
from interlock.graphs._part import Part
from interlock.graphs._pipeline import Compiled
from interlock.state.charts import leaf_of, name_of

_EACH, _NONE = "one each", "none"
"""Labels of a fan-out: to what each payload goes to, and where to go without any."""

NodeKind = Literal["start", "end", "step", "graph"]
"""`graph`: a node that is a graph of its own, drawn closed."""


@dataclass(frozen=True)
class Node:
    id: str
    name: str
    kind: NodeKind
    count: int | None = None
    """How often a run entered it; null: no run is shown."""
    mark: str = ""
    """That the run waits here, or stopped."""

    @property
    def text(self) -> str:
        times = f"{self.name} ×{self.count}" if self.count else self.name
        return f"{times}: {self.mark}" if self.mark else times


@dataclass(frozen=True)
class Edge:
    source: str
    target: str
    labels: tuple[str, ...] = ()
    """What the router returned to go this way; empty: it always goes this way."""
    each: bool = False
    """One task for each payload (LangGraph's `Send`)."""
    count: int | None = None

    @property
    def text(self) -> str:
        times = f"×{self.count}" if self.count and self.count > 1 else ""
        return f"{' · '.join(self.labels)} {times}".strip()


@dataclass(frozen=True)
class Diagram:
    """One graph, with the graphs inside it that are drawn open."""

    id: str
    name: str
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    clusters: tuple["Diagram", ...] = ()

    def all_edges(self) -> list[Edge]:
        """Edges of the clusters first, in the order in which they are drawn."""
        return [e for c in self.clusters for e in c.all_edges()] + list(self.edges)

    def all_nodes(self) -> list[Node]:
        return list(self.nodes) + [n for c in self.clusters for n in c.all_nodes()]

    def all_clusters(self) -> list["Diagram"]:
        return [d for c in self.clusters for d in (c, *c.all_clusters())]


def parts(graph: Compiled) -> dict[str, Compiled]:
    """The nodes that are graphs themselves."""
    nodes: dict[str, Any] = graph.nodes
    return {
        name: part.compiled
        for name in graph.builder.nodes
        for part in nodes[name].subgraphs
        if isinstance(part, Part)
    }


def connections(graph: Compiled) -> list[Edge]:
    """Every edge once, in the order in which the nodes were declared; labels to one target are joined."""
    merged: dict[tuple[str, str], Edge] = {}
    for edge in _declared(graph):
        old = merged.get((edge.source, edge.target), edge)
        labels = tuple(dict.fromkeys(old.labels + edge.labels))
        merged[edge.source, edge.target] = replace(edge, labels=labels, each=old.each or edge.each)
    place = {name: i for i, name in enumerate((START, *graph.builder.nodes, END))}
    return sorted(merged.values(), key=lambda e: (place[e.source], place[e.target]))


def _declared(graph: Compiled) -> Iterator[Edge]:
    for source, target in graph.builder.edges:
        yield Edge(source, target)
    for sources, target in graph.builder.waiting_edges:
        for source in sources:
            yield Edge(source, target)
    for source, branches in graph.builder.branches.items():
        for branch in branches.values():
            ends = {str(label): target for label, target in (branch.ends or {}).items()}
            if isinstance(branch.path, Branch) and branch.path.sends:
                # `Graph.fan_out` names the target of its payloads first, then where to go without any.
                for i, target in enumerate(ends.values()):
                    yield Edge(source, target, (_NONE if i else _EACH,), each=not i)
            else:
                for label, target in ends.items():
                    yield Edge(source, target, (label,))


def places(graph: Compiled, place: Place = ()) -> Iterator[tuple[Place, Compiled]]:
    """The graph and every graph inside it, each with the names of the nodes around it."""
    yield place, graph
    for name, part in parts(graph).items():
        yield from places(part, (*place, name))


def extract(graph: Compiled, depth: int = 1, path: RunPath | None = None, place: Place = ()) -> Diagram:
    """Draw `depth` levels of graphs open, marked with the way of a run; `place`: the nodes around it."""
    inner = parts(graph)
    opened = tuple(inner) if depth > 1 else ()
    declared = connections(graph)
    counts = path.through(place, {(e.source, e.target) for e in declared}) if path else None

    def count(name: str) -> int | None:
        return counts.nodes[name] if counts else None

    def mark(name: str) -> str:
        return path.mark if path and counts and name in counts.here else ""

    nodes = [
        Node(_id(place, n), n, "graph" if n in inner else "step", count(n), mark(n))
        for n in graph.builder.nodes
        if n not in opened
    ]
    edges = tuple(
        replace(
            e,
            source=_id((*place, e.source), END) if e.source in opened else _id(place, e.source),
            target=_id((*place, e.target), START) if e.target in opened else _id(place, e.target),
            count=counts.edges[e.source, e.target] if counts else None,
        )
        for e in declared
    )
    start = Node(_id(place, START), "start", "start", count(START))
    end = Node(_id(place, END), "end", "end", count(END))
    return Diagram(
        id=".".join(place),
        name=place[-1] if place else graph.name or "",
        nodes=(start, *nodes, end),
        edges=edges,
        clusters=tuple(extract(inner[n], depth - 1, path, (*place, n)) for n in opened),
    )


def _id(place: Place, name: str) -> str:
    return ".".join((*place, name))


def extract_chart(name: str, chart: type[StateChart[Any]]) -> Diagram:
    """A statechart: states as nodes, events as labels; a compound state is drawn open."""
    ends = [Node(END, "end", "end")] if any(s.final for s in chart.states) else []
    return Diagram(
        "",
        name,
        (
            Node(START, "start", "start"),
            *(Node(s.id, s.id, "step") for s in chart.states if not s.states),
            *ends,
        ),
        (
            *(Edge(START, name_of(leaf_of(s))) for s in chart.states if s.initial),
            *_moves(chart.states),
            *(Edge(s.id, END) for s in chart.states if s.final),
        ),
        tuple(_compound(s) for s in chart.states if s.states),
    )


def _compound(state: State) -> Diagram:
    nodes = tuple(Node(name_of(s), s.id, "step") for s in state.states)
    return Diagram(name_of(state), state.id, nodes, tuple(_moves(state.states)))


def _moves(states: Iterable[State]) -> list[Edge]:
    """One edge for each pair of states; events that a compound state knows leave from its frame."""
    merged: dict[tuple[str, str], list[str]] = {}
    for state in states:
        for transition in state.transitions:
            events = [e.id for e in transition.events]
            if transition.target is not None and events:  # a compound state's way in has none
                target = name_of(leaf_of(transition.target))
                merged.setdefault((name_of(state), target), []).extend(events)
    return [Edge(s, t, tuple(dict.fromkeys(events))) for (s, t), events in merged.items()]
