"""chart: a statechart as a diagram, and the way that a call or a mode took through it."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from langgraph.graph import END, START
from statemachine import State, StateChart

from interlock.engine.diagrams.shape import Diagram, Edge, Node
from interlock.engine.read.lives import Life
from interlock.state.charts import leaf_of, name_of


def extract_chart(name: str, chart: type[StateChart[Any]], life: Life | None = None) -> Diagram:
    """A statechart: states as nodes, events as labels; a compound state is drawn expanded. `life`: mark this way."""
    drawn = _chart(name, chart)
    return _lived(drawn, life) if life else drawn


def _lived(drawn: Diagram, life: Life) -> Diagram:
    entered = Counter([life.start, *(move.target for move in life.moves)])
    outer = not drawn.id
    ended = outer and any(e.target == END and entered[e.source] for e in drawn.edges)
    entered |= Counter({START: 1 if outer else 0, END: int(ended)})

    def node(one: Node) -> Node:
        return replace(one, count=entered[one.id], mark=life.mark if one.id == life.now else "")

    def edge(one: Edge) -> Edge:
        if one.source == START or one.target == END:
            begins = one.target == life.start if one.source == START else bool(entered[one.source])
            return replace(one, count=int(begins))
        moves = [m for m in life.moves if m.target == one.target and m.event in one.labels]
        moves = [m for m in moves if m.source == one.source or m.source.startswith(f"{one.source}.")]
        labels = tuple(dict.fromkeys(m.event for m in moves)) or one.labels
        notes = tuple(dict.fromkeys(m.why for m in moves if m.why))
        return replace(one, labels=labels, count=len(moves), notes=notes)

    edges = [*map(edge, drawn.edges)]
    if outer and not any(
        e.count for e in edges if e.source == START
    ):  # it began elsewhere than the chart does
        edges.append(Edge(START, life.start, count=1))
    return replace(
        drawn,
        nodes=tuple(map(node, drawn.nodes)),
        edges=tuple(edges),
        clusters=tuple(_lived(cluster, life) for cluster in drawn.clusters),
    )


def _chart(name: str, chart: type[StateChart[Any]]) -> Diagram:
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
    """One edge per pair of states; events handled by a compound state leave from its frame."""
    merged: dict[tuple[str, str], list[str]] = {}
    for state in states:
        for transition in state.transitions:
            events = [e.id for e in transition.events]
            if transition.target is not None and events:  # the entry into a compound state has none
                target = name_of(leaf_of(transition.target))
                merged.setdefault((name_of(state), target), []).extend(events)
    return [Edge(s, t, tuple(dict.fromkeys(events))) for (s, t), events in merged.items()]
