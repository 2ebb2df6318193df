"""graphviz: a diagram as Graphviz source: the main path straight, labels as boxes of their own, a legend.

An edge's label stands in the middle of its edge, as a node without a frame: Graphviz leads edges around nodes, but not
around labels.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from graphlib import TopologicalSorter
from itertools import pairwise
from textwrap import wrap
from typing import Any

from graphviz import Digraph

from interlock.engine.diagrams.graph_model import HELD, LISTS, Diagram, Edge, Node, merge_branches_into_tables

Size = tuple[float, float]
FONT = "Verdana"
"""Graphviz knows its widths without having it, and common fonts aren't wider."""
INSIDE = "#f6f8fa"
"""Behind an opened graph."""
_GRAPH = {
    "fontname": FONT,
    "fontsize": "11",
    "rankdir": "TB",
    "nodesep": "0.1",
    "ranksep": "0.28",
    "compound": "true",
    "remincross": "true",
}
_NODE = {
    "fontname": FONT,
    "fontsize": "11",
    "shape": "box",
    "style": "rounded,filled",
    "fillcolor": "#ffffff",
    "margin": "0.14,0.06",
    "height": "0.36",
}
_EDGE = {"fontname": FONT, "fontsize": "9", "arrowsize": "0.7"}
_LABEL = {
    "class": "label",
    "style": "",
    "penwidth": "0",
    "fontsize": "9",
    "margin": "0.06,0.02",
    "width": "0",
    "height": "0",
}
_SHAPES = {
    "start": {"shape": "oval", "fillcolor": "#24292f", "fontcolor": "#ffffff"},
    "end": {"shape": "oval", "fillcolor": "#24292f", "fontcolor": "#ffffff", "peripheries": "2"},
    "step": {},
    "graph": {"shape": "box", "style": "filled", "peripheries": "2"},
    "list": {"style": "dashed", "color": "#6e7781", "fontcolor": "#57606a", "fontsize": "9"},
    "if": {},
    "then": {"style": "", "color": "#6e7781", "fontcolor": "#57606a", "fontsize": "9"},
    "frame": {"fillcolor": INSIDE, "color": "#6e7781"},
    "note": {
        "shape": "note",
        "fillcolor": "#fff8c5",
        "color": "#9a6700",
        "fontcolor": "#4d2d00",
        "style": "filled",
    },
}
_GROUPS = {
    "main": {},
    "hooks": {"fillcolor": "#f5f0ff", "color": "#b9a5e0", "fontcolor": "#6f5a9e"},
    "questions": {"fillcolor": "#fff8e5", "color": "#d9b760", "fontcolor": "#7a5d00"},
    "errors": {"fillcolor": "#fff0ee", "color": "#e0a39b", "fontcolor": "#9a4a40"},
}
_COLUMNS = 4
"""Samples side by side in a legend of its own: together narrower than an A4 page."""
_MANY, _TOO_MANY = 3, 4
"""Arrowheads at a node: from the first on, edges of the main group that pass a node name it; from the second on, all
that aren't of the main group.
"""
_FAR = 3
"""How many nodes further down an edge may lead before it is cut short, in a picture with opened graphs."""
_NUMBER = re.compile(r"(\d+\.) ")
_WIDEST = 36
"""Characters in a line of a list."""
_BESIDE = {"color": "#9aa3ad", "fontcolor": "#6e7781"}
"""An edge that isn't between two nodes of the main group."""
_TAKEN = {"fillcolor": "#ddf4ff", "color": "#0969da", "fontcolor": "#0a3069", "penwidth": "2"}
_HERE = {"fillcolor": "#fff8c5", "color": "#9a6700", "fontcolor": "#4d2d00", "penwidth": "4"}
_UNTAKEN = {"fillcolor": "#f6f8fa", "color": "#d0d7de", "fontcolor": "#8c959f"}


def dot_source(diagram: Diagram) -> str:
    """Graphviz source; doesn't need `dot` installed."""
    diagram = merge_branches_into_tables(diagram)
    return dot_source_with_legend(
        diagram, legend_nodes(diagram.all_nodes()), shorten_far_edges=bool(diagram.clusters)
    )


def dot_source_with_legend(
    diagram: Diagram,
    samples: Sequence[Node],
    *,
    shorten_far_edges: bool,
    frame_sizes: Mapping[str, Size] | None = None,
    detach_frames: bool = False,
) -> str:
    """Source with this legend. `shorten_far_edges`: shorten edges that lead far; `frame_sizes`: of the frames, in
    points; `detach_frames`: frames that aren't on the main path stand below it, where they don't make it wider, and
    edges name them.
    """
    graph: Any = Digraph(diagram.name, graph_attr=_GRAPH, node_attr=_NODE, edge_attr=_EDGE)
    if diagram.id:
        graph.attr(label=diagram.name, labelloc="t", labeljust="l", bgcolor="transparent")
    if detach_frames:
        graph.attr(nodesep="0.06")
    drawing = _Drawing(diagram, shorten_far_edges, frame_sizes or {}, detach_frames)
    drawing.draw_and_return_outgoing_edges(graph, diagram)
    drawing.stack_detached_nodes(graph)
    if samples:
        graph.subgraph(_legend_cluster(samples, drawing.has_stubs, 1))
    return graph.source


def legend_dot_source(samples: Sequence[Node]) -> str:
    """Source of a picture of the legend alone, for one whose nodes are too high to stand beside."""
    graph: Any = Digraph("legend", graph_attr=_GRAPH, node_attr=_NODE, edge_attr=_EDGE)
    graph.subgraph(_legend_cluster(samples, explain_stubs=True, columns=_COLUMNS))
    return graph.source


def _legend_cluster(samples: Sequence[Node], explain_stubs: bool, columns: int) -> Any:
    box: Any = Digraph("cluster_legend")
    box.attr(label="legend", style="rounded", color="#d0d7de", fontsize="9", fontcolor="#6e7781")
    for node in samples:
        box.node(node.id, node.label_text, **{**_node_style(node), "fontsize": "9", "height": "0.25"})
    names = [node.id for node in samples]
    if explain_stubs:
        names.append("legend.cut")
        box.node(names[-1], "→ name: goes on there", **_LABEL, fontcolor="#6e7781")
    for above, below in zip(names, names[columns:], strict=False):
        box.edge(above, below, style="invis")
    return box


def legend_nodes(nodes: Sequence[Node]) -> list[Node]:
    """A sample of each look that occurs besides a plain step."""
    samples = {
        "graph": Node("legend.graph", "a graph of its own", "graph"),
        "hooks": Node("legend.hooks", "fires hooks", "step", group="hooks"),
        "questions": Node("legend.questions", "asks a person", "step", group="questions"),
        "errors": Node("legend.errors", "mends or refuses", "step", group="errors"),
        "list": Node("legend.list", "what a node goes through", "list"),
        "if": Node("legend.if", "a condition", "if"),
        "then": Node("legend.then", "what stands if a condition holds", "then"),
        "held": Node("legend.held", f"{HELD} what matched or held", "list"),
        "taken": Node("legend.taken", "taken", "step", count=1),
        "untaken": Node("legend.untaken", "not taken", "step", count=0),
        "here": Node("legend.here", "taken", "step", count=1, mark="it is here"),
    }
    looks = {look for node in nodes for look in _legend_keys(node)}
    return [sample for look, sample in samples.items() if look in looks]


def _legend_keys(node: Node) -> Iterator[str]:
    if node.kind in ("graph", *LISTS):
        yield node.kind
    if node.kind in LISTS and HELD in node.name:
        yield "held"
    if node.count is None:
        yield node.group
    elif node.kind not in ("start", "end"):
        yield "here" if node.mark else "taken" if node.count else "untaken"


class _Drawing:
    """What the drawing of each part needs to know of the whole."""

    def __init__(self, diagram: Diagram, cut: bool, sizes: Mapping[str, Size], apart: bool) -> None:
        edges = diagram.all_edges()
        self._sizes = sizes
        self._framed = {
            n.id: c.name for c in diagram.all_clusters() for n in c.nodes if n.kind in ("start", "end")
        }
        start, end = (next((n.id for n in diagram.nodes if n.kind == k), "") for k in ("start", "end"))
        self._groups = {node.id: node.group for node in diagram.all_nodes()}
        self._firsts = {c.id: next(n.id for n in c.all_nodes()) for c in diagram.all_clusters()}
        forward = _forward_edges([self._anchor_edge_to_nodes(e) for e in edges if not e.part], start)
        self._forward = {(e.source, e.target) for e in forward}
        main = [e for e in forward if self._is_main_edge(e)]
        usual = _first_declared_path(main, start, end)
        self._spine = (usual if cut else {}) or _longest_path(main, start, end)
        self._kept = {*usual.items(), *self._spine.items()}
        beside = (n.id for n in diagram.nodes if n.kind == "frame" and n.id not in self._spine)
        self._apart = [end, *beside] if apart else []
        self._start, self._end = start, end
        self._reached = {edge.target for edge in edges if edge.part}
        """What stands below another node that a line joins it to."""
        self._named: dict[str, list[str]] = {}
        self._entering = Counter(self._anchor_edge_to_nodes(e).target for e in edges if not e.part)
        self._leaving = Counter(e.source for e in edges if not e.part)
        self.has_stubs = False
        """Whether an edge was cut short."""
        self._depths = _rank_nodes(forward, sizes)
        self._ranks = self._depths if cut else {}
        self._names = {node.id: node.name for node in diagram.all_nodes()}
        self._names |= {c.id: c.name for c in diagram.all_clusters()}

    def _anchor_edge_to_nodes(self, edge: Edge) -> Edge:
        """Between nodes: one that leaves or enters a frame begins or ends at the first node in it."""
        ends = (self._firsts.get(end, end) for end in (edge.source, edge.target))
        return replace(edge, **dict(zip(("source", "target"), ends, strict=True)))

    def _is_main_edge(self, edge: Edge) -> bool:
        return self._groups[edge.source] == self._groups[edge.target] == "main"

    def draw_and_return_outgoing_edges(self, graph: Any, diagram: Diagram) -> list[Edge]:
        """Draw nodes, clusters and edges; returns the edges that lead out of the diagram, which may not be drawn in it:
        a node that an edge names belongs to the frame that it is named in.
        """
        for node in diagram.nodes:
            spine = {"group": "main path"} if node.id in self._spine else {}
            graph.node(
                node.id,
                self._node_text(node),
                **_node_style(node),
                **spine,
                **self._frame_size_attributes(node),
            )
        leading_out: list[Edge] = []
        for cluster in diagram.clusters:
            inner: Any = Digraph(f"cluster_{cluster.id}")
            titled = all(node.kind != "start" for node in cluster.nodes)
            inner.attr(
                label=cluster.name if titled else "",
                labeljust="l",
                style="rounded",
                color="#6e7781",
                bgcolor=INSIDE,
            )
            leading_out += self.draw_and_return_outgoing_edges(inner, cluster)
            graph.subgraph(inner)
        above = ""
        within = {node.id for node in diagram.all_nodes()} | {c.id for c in diagram.all_clusters()}
        edges = [*leading_out, *diagram.edges]
        for edge in edges:
            if not {edge.source, edge.target} <= within:
                continue
            if edge.part:
                # Below one another, as lists side by side make a picture wide.
                same = above.rpartition(".")[0] == edge.target.rpartition(".")[0]
                graph.edge(
                    above if same else edge.source,
                    edge.target,
                    **_edge_style(edge),
                    **self._condition_edge_attributes(edge),
                )
                above = edge.target
            else:
                self._draw_edge_or_stub(graph, edge)
        return [e for e in edges if not {e.source, e.target} <= within]

    def stack_detached_nodes(self, graph: Any) -> None:
        """Put what stands apart below the end, and then what no line leads to."""
        for above, below in pairwise(self._apart):
            graph.edge(above, below, style="invis", weight="9")
        last = self._apart[-1] if self._apart else self._end
        for node in self._groups if last and self.has_stubs else ():
            if node not in (*self._reached, *self._apart, self._start):
                graph.edge(last, node, style="invis")

    def _node_text(self, node: Node) -> str:
        if node.kind == "frame":
            return ""
        if node.id in self._framed:
            # Instead of a title of the frame, which edges would cross.
            return f"{self._framed[node.id]}: {node.label_text}"
        if node.kind not in (*LISTS, "note"):
            return node.label_text
        lines = node.label_text.splitlines()
        if node.kind in LISTS:
            joined = (_NUMBER.sub("\\1\u00a0", line) for line in lines)  # a number stays with what it counts
            lines = [piece for line in joined for piece in wrap(line, _WIDEST, subsequent_indent="     ")]
        return "".join(f"{line}\\l" for line in lines)

    def _frame_size_attributes(self, node: Node) -> dict[str, str]:
        if node.id not in self._sizes:
            return {}
        wide, high = (str(points / 72) for points in self._sizes[node.id])
        return {"class": "frame", "width": wide, "height": high, "fixedsize": "true"}

    def _condition_edge_attributes(self, edge: Edge) -> dict[str, str]:
        """Conditions stand below the graph's end, so that the main path stays narrow."""
        if edge.part != "then" or edge.source not in self._depths:
            return {}
        return {"minlen": str(max(self._depths.values()) - self._depths[edge.source] + 1)}

    def _draw_edge_or_stub(self, graph: Any, edge: Edge) -> None:
        frames = {"ltail": edge.source, "lhead": edge.target}
        if self._ranks and self._leaving[edge.source] == 1 and edge.count is None:
            edge = replace(edge, labels=())  # they decide nothing; the graph's own picture names them
        edge = self._anchor_edge_to_nodes(edge)
        ends = (edge.source, edge.target)
        style = {**({} if self._is_main_edge(edge) else _BESIDE), **_edge_style(edge)}
        style |= {side: f"cluster_{of}" for side, of in frames.items() if of in self._firsts}
        spine = self._spine.get(edge.source) == edge.target
        style |= {"weight": "60"} if spine else {}
        back = ends not in self._forward
        if ends not in self._kept and (self._is_far_edge(*ends) or self._is_target_crowded(edge)):
            self._draw_edge_stub(graph, ends[0], frames["lhead"], edge.label_text, style)
            return
        way = [ends[0], " to ".join(frames.values()), ends[1]] if edge.label_text else [*ends]
        if edge.label_text:
            colour = {"fontcolor": style["fontcolor"]} if "fontcolor" in style else {}
            graph.node(
                way[1], edge.label_text, **_LABEL, **colour, **({"group": "main path"} if spine else {})
            )
        for source, target in pairwise(way):
            first, last = source == ends[0], target == ends[1]
            sides = {k: v for k, v in style.items() if (k != "ltail" or first) and (k != "lhead" or last)}
            if back:
                arrow = {"dir": "back"} if last else {"dir": "none"}
                turned = {"ltail": "lhead", "lhead": "ltail"}
                graph.edge(target, source, **{turned.get(k, k): v for k, v in sides.items()}, **arrow)
                self._reached.add(source)
            else:
                self._reached.add(target)
                graph.edge(source, target, **sides, **({} if last else {"arrowhead": "none"}))

    def _is_far_edge(self, source: str, target: str) -> bool:
        """Whether the edge would run along many others. Nothing is far in a picture without opened graphs."""
        if not {source, target}.isdisjoint(self._apart[1:]):
            return True
        return bool(self._ranks) and not 0 < self._ranks[target] - self._ranks[source] <= _FAR

    def _is_target_crowded(self, edge: Edge) -> bool:
        """Whether the edge would add its arrowhead to a pile."""
        arrowheads = self._entering[edge.target]
        if not self._is_main_edge(edge):
            return arrowheads >= _TOO_MANY
        return arrowheads >= _MANY and self._depths[edge.target] - self._depths[edge.source] > 1

    def _draw_edge_stub(self, graph: Any, source: str, target: str, text: str, style: dict[str, str]) -> None:
        """Name the target beside the source, instead of a line across the picture."""
        self.has_stubs = True
        colour = {"fontcolor": style["fontcolor"]} if "fontcolor" in style else {}
        stub = f"{source} to {target}"
        label = f"{text}\n→ {self._names[target]}".lstrip()
        if self._apart:  # one below another, as the picture is wide
            named = self._named.setdefault(source, [])
            named.append(label)
            stub, label = f"{source} to others", "\n".join(named)
        graph.node(stub, label, **_LABEL, **colour)
        if not self._apart or len(self._named[source]) == 1:
            graph.edge(source, stub, **{k: v for k, v in style.items() if k != "lhead"}, arrowhead="none")


def _rank_nodes(edges: Iterable[Edge], frames: Container[str]) -> dict[str, int]:
    """The longest way to each node, in edges; past a frame, nothing is near."""
    before: dict[str, list[str]] = defaultdict(list)
    for edge in edges:
        before[edge.target].append(edge.source)
    ranks: dict[str, int] = {}
    for node in TopologicalSorter(before).static_order():
        further = (ranks[s] + (_FAR if s in frames else 1) for s in before[node])
        ranks[node] = max(further, default=0)
    return ranks


def _forward_edges(edges: Sequence[Edge], start: str) -> list[Edge]:
    """The edges that don't lead back to a node on the way to their source."""
    after: dict[str, list[Edge]] = defaultdict(list)
    for edge in edges:
        after[edge.source].append(edge)
    found: list[Edge] = []
    done: set[str] = set()

    def walk(node: str, way: Set[str]) -> None:
        done.add(node)
        for edge in after[node]:
            if edge.target not in way:
                found.append(edge)
                if edge.target not in done:
                    walk(edge.target, way | {edge.target})

    for first in (start, *list(after)):
        if first not in done:
            walk(first, {first})
    return found


def _first_declared_path(edges: Iterable[Edge], start: str, end: str) -> dict[str, str]:
    """The way from start to end by the edges that are declared first: node → next node, the end's is empty."""
    after: dict[str, list[str]] = defaultdict(list)
    for edge in sorted(edges, key=lambda edge: edge.order):
        after[edge.source].append(edge.target)
    dead: set[str] = set()

    def walk(node: str) -> dict[str, str]:
        if node == end:
            return {end: ""}
        for following in after[node]:
            if following not in dead and (way := walk(following)):
                return {node: following, **way}
        dead.add(node)
        return {}

    return walk(start)


def _longest_path(edges: Iterable[Edge], start: str, end: str) -> dict[str, str]:
    """The longest way from start to end: node → next node, the end's is empty."""
    before: dict[str, list[str]] = defaultdict(list)
    for edge in edges:
        before[edge.target].append(edge.source)
    lengths = {start: 1}
    came: dict[str, str] = {}
    for node in TopologicalSorter(before).static_order():
        reached = [source for source in before[node] if source in lengths]
        if reached:
            came[node] = max(reached, key=lambda source: lengths[source])
            lengths[node] = lengths[came[node]] + 1
    way, at = {end: ""}, end
    while at in came:
        way[came[at]], at = at, came[at]
    return way if at == start else {}


def _node_style(node: Node) -> dict[str, str]:
    marked = _HERE if node.mark else {} if node.count is None else _TAKEN if node.count else _UNTAKEN
    return {**_SHAPES[node.kind], **_GROUPS[node.group], **marked}


def _edge_style(edge: Edge) -> dict[str, str]:
    if edge.part:
        return {"style": "dashed", "arrowhead": "none", "color": "#6e7781", "fontcolor": "#57606a"}
    style = {"penwidth": "2.5"} if edge.each else {}
    if edge.count is None:
        return style
    mark = _TAKEN if edge.count else _UNTAKEN
    return {**mark, **style, "fillcolor": mark["color"]}  # colours the arrowhead
