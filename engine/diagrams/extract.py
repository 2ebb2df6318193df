"""extract: compiled graphs and statecharts as diagrams."""

from collections.abc import Iterable
from typing import Any

from langgraph.graph import END, START
from statemachine import State, StateChart

from interlock.engine.diagrams.model import Diagram, Edge, Node
from interlock.engine.diagrams.path import Place, RunPath
from interlock.engine.diagrams.wiring import connections, parts
from interlock.graphs._pipeline import Compiled
from interlock.state.charts import leaf_of, name_of


def extract(graph: Compiled, depth: int = 1, path: RunPath | None = None) -> Diagram:
    """Draw `depth` levels of graphs open, marked with the way of a run."""
    return _level(graph, (), depth, path)


def _level(graph: Compiled, place: Place, depth: int, path: RunPath | None) -> Diagram:
    inner = parts(graph)
    opened = tuple(inner) if depth > 1 else ()

    declared = connections(graph)
    counts = path.through(place, {(w.source, w.target) for w in declared}) if path else None

    def count(name: str) -> int | None:
        return counts.nodes[name] if counts else None

    nodes = [
        Node(_id(place, n), n, "graph" if n in inner else "step", count(n))
        for n in graph.builder.nodes
        if n not in opened
    ]
    edges = tuple(
        Edge(
            _id((*place, w.source), END) if w.source in opened else _id(place, w.source),
            _id((*place, w.target), START) if w.target in opened else _id(place, w.target),
            w.labels,
            w.each,
            counts.edges[w.source, w.target] if counts else None,
        )
        for w in declared
    )
    start = Node(_id(place, START), "start", "start", count(START))
    end = Node(_id(place, END), "end", "end", count(END))
    return Diagram(
        id=".".join(place),
        name=place[-1] if place else graph.name or "",
        nodes=(start, *nodes, end),
        edges=edges,
        clusters=tuple(_level(inner[n], (*place, n), depth - 1, path) for n in opened),
    )


def _id(place: Place, name: str) -> str:
    return ".".join((*place, name))


def extract_chart(name: str, chart: type[StateChart[Any]]) -> Diagram:
    """A statechart: states as nodes, events as labels; a compound state is drawn open."""
    ends = [Node(END, "end", "end")] if any(s.final for s in chart.states) else []
    return Diagram(
        "",
        name,
        (Node(START, "start", "start"), *(Node(s.id, s.id, "step") for s in _plain(chart.states)), *ends),
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


def _plain(states: Iterable[State]) -> list[State]:
    return [s for s in states if not s.states]


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
