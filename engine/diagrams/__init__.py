"""diagrams: pictures of pipelines, from the compiled graphs, and of a run's path through them.

Those in `diagrams/` are generated: one for each pipeline and each statechart.
"""

import re
from functools import cache
from pathlib import Path
from typing import Any

from graphviz import Digraph

from interlock.engine.diagrams.chart import extract_chart
from interlock.engine.diagrams.picture import png, svg
from interlock.engine.diagrams.shape import (
    Diagram,
    Edge,
    Node,
    RunPath,
    connections,
    extract,
    path_of,
    places,
    run_path,
    subgraphs,
)
from interlock.engine.read.lives import Life
from interlock.graphs import PIPELINES, pipeline
from interlock.graphs._pipeline import Compiled, Pipeline
from interlock.state.charts import CHARTS
from interlock.state.errors import UserError

__all__ = ["RunPath", "check", "declared_edges", "path_of", "render", "run_path", "taken_edges", "write"]

_FIX = "interlock diagrams --write"
_HEADER = f"%% {{what}}\n%% Generated from the code by: {_FIX}\n"
FORMATS = ("mermaid", "dot", "svg", "png")


def render(
    workflow: str | Pipeline,
    format: str = "mermaid",
    depth: int = 1,
    path: RunPath | None = None,
    life: Life | None = None,
) -> str | bytes:
    """Draw a workflow, with `depth` levels of graphs expanded, or a statechart. With the `path` that a run took, or the
    `life` that went through a chart, what was taken is coloured and counted, and the rest is grey. Returns text for
    mermaid and dot, else bytes.
    """
    if format not in FORMATS:
        raise UserError(f"No diagram format {format!r}; expected one of {', '.join(FORMATS)}.")
    if depth < 1:
        raise UserError(f"Diagram depth {depth} draws nothing; expected 1 or more: --depth 1")
    name = workflow if isinstance(workflow, str) else workflow.name
    if (chart := CHARTS.get(name)) and depth > 1:
        raise UserError(f"The statechart {name!r} has no graphs inside it to draw open. Leave --depth out.")
    diagram = extract_chart(name, chart, life) if chart else extract(_graph(workflow, path), depth, path)
    if format == "mermaid":
        return mermaid(diagram)
    source = dot(diagram)
    return source if format == "dot" else svg(source) if format == "svg" else png(source)


def declared_edges(workflow: str) -> set[tuple[str, str, str]]:
    """Every edge of a workflow and its nested graphs: (graph, source, target)."""
    return edges(_graph(workflow))


def taken_edges(workflow: str, path: RunPath) -> set[tuple[str, str, str]]:
    """The declared edges whose two nodes ran in succession."""
    return edges(_graph(workflow, path), path)


def edges(graph: Compiled, path: RunPath | None = None) -> set[tuple[str, str, str]]:
    found: set[tuple[str, str, str]] = set()
    for place, inner in places(graph):
        declared = {(w.source, w.target) for w in connections(inner)}
        taken = declared if path is None else path.through(place, declared).edges
        found |= {(inner.name or "", source, target) for source, target in taken}
    return found


def _graph(workflow: str | Pipeline, path: RunPath | None = None) -> Compiled:
    """The compiled graph; session hooks, the same around every workflow, are included only if the run took them."""
    declared = pipeline(workflow) if isinstance(workflow, str) else workflow
    session = path is not None and bool(path.entered & {"session_start", "session_end"})
    return _compiled(declared, session)


@cache
def _compiled(declared: Pipeline, hooked: bool) -> Compiled:
    return declared.compile() if hooked else declared.build().compile()


def write(folder: Path) -> list[Path]:
    """Write missing or stale files and delete orphans; return the paths that changed."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = _texts()
    changed = [folder / name for name, text in texts.items() if _read(folder / name) != text]
    for path in changed:
        path.write_text(texts[path.name], encoding="utf-8", newline="\n")
    orphans = _orphans(folder, texts)
    for path in orphans:
        path.unlink()
    return [*changed, *orphans]


def check(folder: Path) -> list[str]:
    """One line per file that is missing, stale or an orphan, with the command that fixes it."""
    texts = _texts()
    problems: list[str] = []
    for name, text in texts.items():
        found = _read(folder / name)
        if found != text:
            state = "is missing" if found is None else "is stale"
            problems.append(f"{folder / name} {state}. Run: {_FIX}")
    problems += [f"{path} draws nothing that exists. Run: {_FIX}" for path in _orphans(folder, texts)]
    return problems


def _texts() -> dict[str, str]:
    texts: dict[str, str] = {}
    for name, what in PIPELINES.items():
        graph = pipeline(name).build().compile()
        header = _HEADER.format(what=f"{name}: {what}.")
        texts[f"{name}.mmd"] = header + mermaid(extract(graph, own_depth(graph)))
    for name, chart in CHARTS.items():
        header = _HEADER.format(what=f"{name}: the statechart {chart.__name__}.")
        texts[f"chart-{name}.mmd"] = header + mermaid(extract_chart(name, chart))
    return texts


def own_depth(graph: Compiled) -> int:
    """The depth that expands every subgraph without a diagram of its own."""
    hidden = [inner for inner in subgraphs(graph).values() if inner.name not in PIPELINES]
    return 1 + max(map(own_depth, hidden), default=0)


def _orphans(folder: Path, texts: dict[str, str]) -> list[Path]:
    return sorted(p for p in folder.glob("*.mmd") if p.name not in texts)


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


_RESERVED = re.compile("end|graph|subgraph|flowchart|style|class|click|default|linkStyle|direction")
"""Mermaid's keywords."""
_BRACKETS = {
    "start": ("([", "])"),
    "end": ("([", "])"),
    "step": ("[", "]"),
    "graph": ("[[", "]]"),
    "list": ("[", "]"),
}
_STYLES = {
    "inner": "fill:#f6f8fa,stroke:#6e7781,color:#24292f",
    "terminal": "fill:#24292f,stroke:#6e7781,color:#ffffff",
    "list": "fill:#ffffff,stroke:#6e7781,color:#57606a,stroke-dasharray:4 3,text-align:left",
    "taken": "fill:#ddf4ff,stroke:#0969da,color:#0a3069,stroke-width:2px",
    "here": "fill:#fff8c5,stroke:#9a6700,color:#4d2d00,stroke-width:4px",
    "untaken": "fill:#f6f8fa,stroke:#d0d7de,color:#8c959f",
}
_TAKEN_EDGE, _UNTAKEN_EDGE = "stroke:#0969da,stroke-width:3px", "stroke:#d0d7de,color:#8c959f"


def mermaid(diagram: Diagram) -> str:
    """Mermaid flowchart text. Not LangGraph's renderer, as that adds theme lines that vary."""
    lines = ["flowchart TD", *_body(diagram, 1)]
    nodes, edges = diagram.all_nodes(), diagram.all_edges()
    members = {"inner": [_id(c.id) for c in diagram.all_clusters()]}
    for node in nodes:
        members.setdefault(_class(node), []).append(_id(node.id))
    for name, style in _STYLES.items():
        if members.get(name):
            lines.append(f"    classDef {name} {style}")
            lines.append(f"    class {','.join(members[name])} {name}")
    for style, taken in ((_TAKEN_EDGE, True), (_UNTAKEN_EDGE, False)):
        numbers = [str(i) for i, e in enumerate(edges) if e.count is not None and bool(e.count) == taken]
        if numbers:
            lines.append(f"    linkStyle {','.join(numbers)} {style}")
    return "\n".join(lines) + "\n"


def _body(diagram: Diagram, depth: int) -> list[str]:
    # An edge drawn before its nodes would move them out of their cluster.
    indent = "    " * depth
    lines: list[str] = []
    for node in diagram.nodes:
        left, right = _BRACKETS[node.kind]
        lines.append(f'{indent}{_id(node.id)}{left}"{_escape(node.text)}"{right}')
    for cluster in diagram.clusters:
        lines.append(f'{indent}subgraph {_id(cluster.id)}["{_escape(cluster.name)}"]')
        lines += [*_body(cluster, depth + 1), f"{indent}end"]
    return lines + [indent + _edge(e) for e in diagram.edges]


def _edge(edge: Edge) -> str:
    arrow = "==>" if edge.each else "-.-" if edge.part else "-->"
    middle = f'|"{_escape(edge.text)}"|' if edge.text else ""
    return f"{_id(edge.source)} {arrow}{middle} {_id(edge.target)}"


def _class(node: Node) -> str:
    if node.mark:
        return "here"
    if node.count is not None:
        return "taken" if node.count else "untaken"
    return {"start": "terminal", "end": "terminal", "list": "list"}.get(node.kind, "")


def _escape(text: str) -> str:
    return (
        text.replace("#", "#35;")
        .replace('"', "#quot;")
        .replace("<", "&lt;")
        .replace(">", "&gt;")
        .replace("\n", "<br/>")
    )


def _id(name: str) -> str:
    """A valid Mermaid id: neither dots nor keywords are allowed."""
    plain = "".join(c if c.isalnum() or c == "_" else "_" for c in name)
    return f"{plain}_" if _RESERVED.fullmatch(plain) else plain


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
"""Padding around edge labels and (as a margin) in boxes: the viewer's font may be wider than the layout's."""
_SHAPES = {
    "start": {"shape": "oval", "fillcolor": "#24292f", "fontcolor": "#ffffff"},
    "end": {"shape": "oval", "fillcolor": "#24292f", "fontcolor": "#ffffff", "peripheries": "2"},
    "step": {},
    "graph": {"shape": "box", "style": "filled", "peripheries": "2"},
    "list": {"style": "dashed", "color": "#6e7781", "fontcolor": "#57606a", "fontsize": "10"},
}
_TAKEN = {"fillcolor": "#ddf4ff", "color": "#0969da", "fontcolor": "#0a3069", "penwidth": "2"}
_HERE = {"fillcolor": "#fff8c5", "color": "#9a6700", "fontcolor": "#4d2d00", "penwidth": "4"}
_UNTAKEN = {"fillcolor": "#f6f8fa", "color": "#d0d7de", "fontcolor": "#8c959f"}


def dot(diagram: Diagram) -> str:
    """Graphviz source; doesn't need `dot` installed."""
    graph: Any = Digraph(diagram.name, graph_attr=_GRAPH, node_attr=_NODE, edge_attr=_EDGE)
    _fill(graph, diagram)
    return graph.source


def _fill(graph: Any, diagram: Diagram) -> None:
    for node in diagram.nodes:
        text = (
            "".join(f"{line}{_GAP}\\l" for line in node.text.splitlines())
            if node.kind == "list"
            else node.text
        )
        graph.node(node.id, text, **_node_style(node))
    for cluster in diagram.clusters:
        inner: Any = Digraph(f"cluster_{cluster.id}")
        inner.attr(label=cluster.name, style="rounded", color="#6e7781", bgcolor="#f6f8fa")
        _fill(inner, cluster)
        graph.subgraph(inner)
    for edge in diagram.edges:
        label = "\n".join(f"{_GAP}{line}{_GAP}" for line in edge.text.splitlines())
        graph.edge(edge.source, edge.target, label=label, **_edge_style(edge))


def _node_style(node: Node) -> dict[str, str]:
    marked = _HERE if node.mark else {} if node.count is None else _TAKEN if node.count else _UNTAKEN
    return {**_SHAPES[node.kind], **marked}


def _edge_style(edge: Edge) -> dict[str, str]:
    if edge.part:
        return {"style": "dashed", "arrowhead": "none", "color": "#6e7781", "fontcolor": "#57606a"}
    style = {"penwidth": "2.5"} if edge.each else {}
    if edge.count is None:
        return style
    mark = _TAKEN if edge.count else _UNTAKEN
    return {**mark, **style, "fillcolor": mark["color"]}  # colours the arrowhead
