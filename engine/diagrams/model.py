"""model: a diagram as data, between the graph it is taken from and the text it becomes."""

from dataclasses import dataclass
from typing import Literal

NodeKind = Literal["start", "end", "step", "graph"]
"""`graph`: a node that is a graph of its own, drawn closed."""


@dataclass(frozen=True)
class Node:
    id: str
    name: str
    kind: NodeKind
    count: int | None = None
    """How often a run entered it; null: no run is shown."""


@dataclass(frozen=True)
class Edge:
    source: str
    target: str
    labels: tuple[str, ...] = ()
    """What the router returned to go this way; empty: it always goes this way."""
    each: bool = False
    """One task for each payload (LangGraph's `Send`)."""
    count: int | None = None


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
