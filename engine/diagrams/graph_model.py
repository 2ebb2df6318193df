"""graph_model: extracts nodes and edges of a compiled graph or statechart as data, with a run's way through it."""

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Set
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from langgraph.graph import END, START
from statemachine import State, StateChart

from interlock.engine.read.lifecycles import Lifecycle
from interlock.engine.read.run_path import Counts, Place, RunPath
from interlock.graphs.graph import Compiled, Subgraph
from interlock.graphs.supersteps import DrawnBranch, SuperstepTask
from interlock.state.charts import initial_leaf_state, qualified_state_name
from interlock.state.names import RAISED, node_display_name
from interlock.state.node import Group, NodeSpec, Part, find_node_spec

GROUPS = (*get_args(Group), "lists")
"""What can be shown of a diagram: the groups of its nodes, and what nodes choose among."""
_EACH, _NONE = "one each", "none"
"""Labels of a fan-out: the edge for each payload, and the one taken without any."""

NodeKind = Literal["start", "end", "step", "graph", "frame", "list", "if", "then", "note"]
"""`graph`: a node that is itself a graph, drawn collapsed. `frame`: one whose picture is put in. `list`: what a node
chooses among (`Part`); `if` and `then`: a branch of it. `note`: what a run waits for."""
LISTS = ("list", "if", "then")
HELD = "✓"
"""Before what matched or held in a run."""


@dataclass(frozen=True)
class Node:
    id: str
    name: str
    kind: NodeKind
    count: int | None = None
    """How often a run entered it; null: no run is shown."""
    mark: str = ""
    """Label saying that the run waits here, or stopped."""
    group: Group = "main"

    @property
    def label_text(self) -> str:
        """The name, how often it was entered, and its label. A list has a line for each thing."""
        times = f"{self.name} ×{self.count}" if self.count else self.name
        return f"{times}: {self.mark}" if self.mark else times


_LABEL_CHARS = 26
"""A line of labels; longer ones make pictures too wide to be read on a page."""


@dataclass(frozen=True)
class Edge:
    source: str
    target: str
    labels: tuple[str, ...] = ()
    """Router results that lead this way; empty: unconditional."""
    each: bool = False
    """One task per payload (LangGraph's `Send`)."""
    part: NodeKind | None = None
    """Kind of what it leads to, if that is drawn beside a node: a list, a branch or a note."""
    count: int | None = None
    notes: tuple[str, ...] = ()
    """Lines below the label: who decided."""
    order: int = 0
    """Its place among those that leave its source, as declared: the usual way is declared first."""

    @property
    def label_text(self) -> str:
        times = f"×{self.count}" if self.count and self.count > 1 else ""
        lines = [""]
        for label in self.labels:
            longer = f"{lines[-1]} · {label}" if lines[-1] else label
            lines[-1:] = [longer] if len(longer) <= _LABEL_CHARS else [lines[-1], label]
        lines[-1] = f"{lines[-1]} {times}".strip()
        return "\n".join((*filter(None, lines), *self.notes))


@dataclass(frozen=True)
class Diagram:
    """One graph, including its nested graphs that are drawn expanded."""

    id: str
    name: str
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    clusters: tuple["Diagram", ...] = ()

    def all_edges(self) -> list[Edge]:
        """Edges in drawing order: those of the clusters first."""
        return [e for c in self.clusters for e in c.all_edges()] + list(self.edges)

    def all_nodes(self) -> list[Node]:
        return list(self.nodes) + [n for c in self.clusters for n in c.all_nodes()]

    def filter_by_groups(self, groups: Set[str]) -> "Diagram":
        """Without the nodes of other groups (`GROUPS`), and without their edges."""
        gone = {n.id for n in self.all_nodes() if ("lists" if n.kind in LISTS else n.group) not in groups}
        return self._without_nodes(gone) if gone else self

    def _without_nodes(self, node_ids: Set[str]) -> "Diagram":
        return replace(
            self,
            nodes=tuple(n for n in self.nodes if n.id not in node_ids),
            edges=tuple(e for e in self.edges if e.source not in node_ids and e.target not in node_ids),
            clusters=tuple(c._without_nodes(node_ids) for c in self.clusters),
        )

    def all_clusters(self) -> list["Diagram"]:
        return [d for c in self.clusters for d in (c, *c.all_clusters())]


def nested_graphs(graph: Compiled) -> dict[str, Compiled]:
    """The nodes that are themselves graphs."""
    nodes: dict[str, Any] = graph.nodes
    return {
        name: part.compiled if isinstance(part, Subgraph) else part
        for name in _node_names(graph)
        for part in nodes[name].subgraphs
    }


def _node_names(graph: Any) -> list[str]:
    """Its nodes in order, without names of earlier versions; an `@entrypoint` is one."""
    if not hasattr(graph, "builder"):
        return [*graph.nodes]
    found: dict[str, Any] = {name: spec.runnable for name, spec in graph.builder.nodes.items()}
    return [name for name, task in found.items() if not isinstance(task, SuperstepTask) or task.node == name]


def merged_edges(graph: Compiled) -> list[Edge]:
    """Every edge once, in the order the nodes were declared; labels to the same target are joined."""
    merged: dict[tuple[str, str], list[Edge]] = {}
    for edge in _declared_edges(graph):
        merged.setdefault((edge.source, edge.target), []).append(edge)
    place = {name: i for i, name in enumerate((START, *_node_names(graph), END))}
    order = Counter[str]()
    found: list[Edge] = []
    for (source, target), same in merged.items():
        labels = dict.fromkeys(label for edge in same for label in edge.labels)
        each = any(edge.each for edge in same)
        found.append(Edge(source, target, tuple(labels), each=each, order=order[source]))
        order[source] += 1
    return sorted(found, key=lambda e: (place[e.source], place[e.target]))


def _declared_edges(graph: Compiled) -> Iterator[Edge]:
    if not hasattr(graph, "builder"):
        for name in _node_names(graph):
            yield from (Edge(START, name), Edge(name, END))
        return
    for source, target in sorted(graph.builder.edges):  # a set: the order is of no meaning
        yield Edge(source, target)
    for source, target in _edges_into_joins(graph):
        yield Edge(source, target)
    for source, branches in graph.builder.branches.items():
        for branch in branches.values():
            # Without a map, a foreign graph's router may lead anywhere.
            ends = {str(label): t for label, t in (branch.ends or _possible_targets(graph, source)).items()}
            if isinstance(branch.path, DrawnBranch) and branch.path.sends:
                # `Graph.fan_out` lists the payloads' target first, then the target without any.
                for i, target in enumerate(ends.values()):
                    yield Edge(source, target, (_NONE if i else _EACH,), each=not i)
            else:
                for label, target in ends.items():
                    yield Edge(source, target, (label,))

    for source in _node_names(graph):  # where a foreign node's `Command` may lead
        spec: Any = graph.builder.nodes[source]
        named: Any = spec.ends
        labels: dict[str, str] = dict(named) if isinstance(named, dict) else dict.fromkeys(named, "")  # pyright: ignore[reportUnknownArgumentType]
        for target, label in labels.items():
            yield Edge(source, target, (label,) if label else ())
        led = {
            *graph.builder.branches,
            *(start for start, _ in (*graph.builder.edges, *_edges_into_joins(graph))),
        }
        if not labels and source not in led:  # LangGraph ends there
            yield Edge(source, END)
        if handler := getattr(spec, "error_handler_node", None):
            yield Edge(source, handler, (RAISED,))


def _edges_into_joins(graph: Compiled) -> Iterator[tuple[str, str]]:
    for sources, target in graph.builder.waiting_edges:
        yield from ((source, target) for source in sources)


def _possible_targets(graph: Compiled, source: str) -> dict[str, str]:
    return {name: name for name in (*_node_names(graph), END) if name != source}


def walk_graphs(graph: Compiled, place: Place = ()) -> Iterator[tuple[Place, Compiled]]:
    """The graph and every nested graph, each with the names of the nodes around it."""
    yield place, graph
    for name, part in nested_graphs(graph).items():
        yield from walk_graphs(part, (*place, name))


def extract_diagram(
    graph: Compiled,
    depth: int = 1,
    path: RunPath | None = None,
    place: Place = (),
    enclosing_graphs: Set[str | None] = frozenset(),
) -> Diagram:
    """Draw `depth` levels of graphs expanded, marked with a run's path; `place`: the nodes around the graph.

    A graph in one of its name (`enclosing_graphs`), like a sub-agent's tools in its parent's, is closed unless a run
    took it.
    """
    inner, enclosing_graphs = nested_graphs(graph), enclosing_graphs | {graph.name}
    opened = tuple(
        n for n, part in inner.items() if depth > 1 and (path or part.name not in enclosing_graphs)
    )
    declared = merged_edges(graph)
    counts = path.count_nodes_and_edges(place, {(e.source, e.target) for e in declared}) if path else None

    def count(name: str) -> int | None:
        return counts.nodes[name] if counts else None

    def mark(name: str) -> str:
        return path.mark if path and counts and name in counts.here else ""

    groups = _node_groups(graph, declared)
    nodes = [
        Node(
            _diagram_node_id(place, n),
            node_display_name(n),
            "graph" if n in inner else "step",
            count(n),
            mark(n),
            groups[n],
        )
        for n in _node_names(graph)
        if n not in opened
    ]
    beside = [*_choice_nodes(graph, place, counts), *_waiting_request_notes(nodes, path)]
    edges = [*_to_drawn_edges(declared, place, opened, counts)]
    edges += [Edge(of, node.id, part=node.kind) for of, node in beside]
    nodes.insert(0, Node(_diagram_node_id(place, START), "start", "start", count(START)))
    nodes += [*(node for _, node in beside), Node(_diagram_node_id(place, END), "end", "end", count(END))]
    return Diagram(
        id=".".join(place),
        name=place[-1] if place else graph.name or "",
        nodes=tuple(nodes),
        edges=tuple(edges),
        clusters=tuple(
            extract_diagram(inner[n], depth - 1, path, (*place, n), enclosing_graphs) for n in opened
        ),
    )


def _to_drawn_edges(
    declared: Iterable[Edge], place: Place, expanded: Container[str], counts: Counts | None
) -> Iterator[Edge]:
    """The edges between what is drawn: an opened graph is entered at its start and left at its end."""
    for edge in declared:
        yield replace(
            edge,
            source=_diagram_node_id((*place, edge.source), END)
            if edge.source in expanded
            else _diagram_node_id(place, edge.source),
            target=_diagram_node_id((*place, edge.target), START)
            if edge.target in expanded
            else _diagram_node_id(place, edge.target),
            count=counts.edges[edge.source, edge.target] if counts else None,
        )


def _waiting_request_notes(nodes: Iterable[Node], path: RunPath | None) -> Iterator[tuple[str, Node]]:
    """Beside the node that waits, for what; one note is enough."""
    waiting = next((n.id for n in nodes if n.mark), "")
    if path and path.asks and waiting:
        yield waiting, Node(f"{waiting}.asks", "\n".join(path.asks), "note")


def _choice_nodes(graph: Any, place: Place, counts: Counts | None) -> Iterator[tuple[str, Node]]:
    """What a node chooses among, each beside what leads to it, marked with what a run chose: the conditions of branches
    lead to one another.
    """
    for name in _node_names(graph):
        held = counts.reasons_of(name) if counts else Counter[str]()
        any_held = counts.all_reasons if counts and counts.nodes[name] else Counter[str]()
        above = _diagram_node_id(place, name)
        for i, part in enumerate(_node_parts(graph, name)):
            if not part.numbers:
                yield (
                    _diagram_node_id(place, name),
                    Node(_diagram_node_id(place, f"{name}.list{i}"), _choice_list_text(part, held), "list"),
                )
                continue
            mark = f"{HELD} " * any(any_held[one] for one in part.what)
            condition = Node(_diagram_node_id(place, f"{name}.if{i}"), f"{mark}{part.when}", "if")
            yield above, condition
            above = condition.id
            yield (
                above,
                Node(_diagram_node_id(place, f"{name}.then{i}"), _numbered_choices_text(part), "then"),
            )


def _node_spec(graph: Any, name: str) -> NodeSpec | None:
    task = graph.builder.nodes[name].runnable if hasattr(graph, "builder") else None
    return find_node_spec(task.function) if isinstance(task, SuperstepTask) else None


def _node_parts(graph: Any, name: str) -> tuple[Part, ...]:
    spec = _node_spec(graph, name)
    return spec.parts if spec else ()


def _node_groups(graph: Any, edges: Iterable[Edge]) -> dict[str, Group]:
    """Node → group; a wait that only hooks lead to is theirs."""
    groups: dict[str, Group] = {}
    for name in _node_names(graph):
        spec = _node_spec(graph, name)
        groups[name] = spec.group if spec else "main"
    before: dict[str, set[str]] = {}
    for edge in edges:
        before.setdefault(edge.target, set()).add(groups.get(edge.source, "main"))
    waits = {n: g for n, g in groups.items() if g == "questions" and before.get(n) == {"hooks"}}
    return {**groups, **dict.fromkeys(waits, "hooks")}


def _choice_list_text(part: Part, held_counts: Counter[str]) -> str:
    def line(number: int, one: str) -> str:
        times = held_counts[one] or held_counts[one.partition(": ")[0]]
        return f"{HELD} " * bool(times) + f"{number}. {one}" + (f" ×{times}" if times > 1 else "")

    return "\n".join([f"{part.when}:", *(line(k, one) for k, one in enumerate(part.what, 1))])


def _numbered_choices_text(part: Part) -> str:
    return "\n".join(f"{k}. {one}" for k, one in zip(part.numbers, part.what, strict=True))


def merge_branches_into_tables(diagram: Diagram) -> Diagram:
    """The same with one table of a node's branches, a line each: a picture of them all would be a long ladder."""
    lines: dict[str, list[str]] = {}
    texts = {node.id: node.name for node in diagram.nodes}
    nodes = [node for node in diagram.nodes if node.kind not in ("if", "then")]
    edges = [edge for edge in diagram.edges if edge.part not in ("if", "then")]
    for edge in (edge for edge in diagram.edges if edge.part == "then"):
        stands = ", ".join(texts[edge.target].splitlines())
        lines.setdefault(edge.source.rpartition(".")[0], []).append(f"{texts[edge.source]}: {stands}")
    for of, listed in lines.items():
        table = Node(f"{of}.then0", "\n".join(listed), "then")
        nodes.append(table)
        edges.append(Edge(of, table.id, part="then"))
    clusters = tuple(map(merge_branches_into_tables, diagram.clusters))
    return replace(diagram, nodes=tuple(nodes), edges=tuple(edges), clusters=clusters)


def _diagram_node_id(place: Place, name: str) -> str:
    return ".".join((*place, name))


def extract_chart_diagram(
    name: str, chart: type[StateChart[Any]], lifecycle: Lifecycle | None = None
) -> Diagram:
    """Draw a statechart: states as nodes, events as labels; compound states expanded. `lifecycle`: mark this way."""
    drawn = _chart_diagram(name, chart)
    return _mark_lifecycle_in_diagram(drawn, lifecycle) if lifecycle else drawn


def _mark_lifecycle_in_diagram(diagram: Diagram, lifecycle: Lifecycle) -> Diagram:
    entered = Counter([lifecycle.start, *(move.target for move in lifecycle.moves)])
    outer = not diagram.id
    ended = outer and any(e.target == END and entered[e.source] for e in diagram.edges)
    entered |= Counter({START: 1 if outer else 0, END: int(ended)})

    def node(one: Node) -> Node:
        return replace(
            one, count=entered[one.id], mark=lifecycle.mark if one.id == lifecycle.current_state else ""
        )

    def edge(one: Edge) -> Edge:
        if one.source == START or one.target == END:
            begins = one.target == lifecycle.start if one.source == START else bool(entered[one.source])
            return replace(one, count=int(begins))
        moves = [m for m in lifecycle.moves if m.target == one.target and m.event in one.labels]
        moves = [m for m in moves if m.source == one.source or m.source.startswith(f"{one.source}.")]
        labels = tuple(dict.fromkeys(m.event for m in moves)) or one.labels
        notes = tuple(dict.fromkeys(m.why for m in moves if m.why))
        return replace(one, labels=labels, count=len(moves), notes=notes)

    edges = [*map(edge, diagram.edges)]
    if outer and not any(
        e.count for e in edges if e.source == START
    ):  # it began elsewhere than the chart does
        edges.append(Edge(START, lifecycle.start, count=1))
    return replace(
        diagram,
        nodes=tuple(map(node, diagram.nodes)),
        edges=tuple(edges),
        clusters=tuple(_mark_lifecycle_in_diagram(cluster, lifecycle) for cluster in diagram.clusters),
    )


def _chart_diagram(name: str, chart: type[StateChart[Any]]) -> Diagram:
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
            *(Edge(START, qualified_state_name(initial_leaf_state(s))) for s in chart.states if s.initial),
            *_transition_edges(chart.states),
            *(Edge(s.id, END) for s in chart.states if s.final),
        ),
        tuple(_compound_state_diagram(s) for s in chart.states if s.states),
    )


def _compound_state_diagram(state: State) -> Diagram:
    nodes = tuple(Node(qualified_state_name(s), s.id, "step") for s in state.states)
    return Diagram(qualified_state_name(state), state.id, nodes, tuple(_transition_edges(state.states)))


def _transition_edges(states: Iterable[State]) -> list[Edge]:
    """One edge per pair of states; events handled by a compound state leave from its frame."""
    merged: dict[tuple[str, str], list[str]] = {}
    for state in states:
        for transition in state.transitions:
            events = [e.id for e in transition.events]
            if transition.target is not None and events:  # the entry into a compound state has none
                target = qualified_state_name(initial_leaf_state(transition.target))
                merged.setdefault((qualified_state_name(state), target), []).extend(events)
    return [Edge(s, t, tuple(dict.fromkeys(events))) for (s, t), events in merged.items()]
