"""diagrams: pictures of pipelines, from the compiled graphs, and of a run's path through them.

Those in `diagrams/` are generated: one for each pipeline and each statechart.
"""

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from interlock.engine.diagrams.graph_model import (
    GROUPS,
    Diagram,
    Edge,
    Node,
    extract_chart_diagram,
    extract_diagram,
    merged_edges,
    nested_graphs,
    walk_graphs,
)
from interlock.engine.diagrams.graphviz import dot_source, legend_nodes
from interlock.engine.diagrams.image import (
    rasterize_svg,
    render_dot_as_png,
    render_dot_as_svg,
    render_nested_svg,
)
from interlock.engine.read.lifecycles import Lifecycle
from interlock.engine.read.run_path import Place, RunPath, build_run_path
from interlock.graphs import PIPELINES, load_pipeline
from interlock.graphs.graph import Compiled
from interlock.graphs.pipeline import Pipeline
from interlock.state.charts import CHARTS
from interlock.state.errors import UserError

__all__ = [
    "GROUPS",
    "RunPath",
    "build_run_path",
    "declared_edges",
    "declared_edges_by_place",
    "list_diagram_problems",
    "render_diagram",
    "sync_diagram_files",
    "taken_edges",
]

_FIX = "interlock diagrams --write"
_HEADER = f"%% {{what}}\n%% Generated from the code by: {_FIX}\n"
FORMATS = ("mermaid", "dot", "svg", "png")


def render_diagram(
    workflow: str | Pipeline,
    format: str = "mermaid",
    depth: int = 1,
    path: RunPath | None = None,
    lifecycle: Lifecycle | None = None,
    groups: Sequence[str] = GROUPS,
    with_session_hooks: bool = False,
) -> str | bytes:
    """Draw a workflow, with `depth` levels of graphs expanded and the groups `groups` of its nodes, or a statechart.

    With the `path` that a run took, or the `lifecycle` that went through a chart, what was taken is coloured and
    counted, and the rest is grey. `with_session_hooks`: with the hooks of a session also without a path. Returns text
    for mermaid and dot, else bytes.
    """
    if format not in FORMATS:
        raise UserError(f"No diagram format {format!r}; expected one of {', '.join(FORMATS)}.")
    if depth < 1:
        raise UserError(f"Diagram depth {depth} draws nothing; expected 1 or more: --depth 1")
    name = workflow if isinstance(workflow, str) else workflow.name
    if (chart := CHARTS.get(name)) and depth > 1:
        raise UserError(f"The statechart {name!r} has no graphs inside it to draw open. Leave --depth out.")
    diagram = (
        extract_chart_diagram(name, chart, lifecycle)
        if chart
        else extract_diagram(_compile_for_drawing(workflow, path, with_session_hooks), depth, path)
    )
    diagram = diagram if chart else diagram.filter_by_groups({*groups})
    if format == "mermaid":
        return render_mermaid(diagram)
    if diagram.clusters and not chart and format != "dot":
        drawn = render_nested_svg(diagram)
        return drawn if format == "svg" else rasterize_svg(drawn)
    source = dot_source(diagram)
    return (
        source
        if format == "dot"
        else render_dot_as_svg(source)
        if format == "svg"
        else render_dot_as_png(source)
    )


def declared_edges(workflow: str) -> set[tuple[str, str, str]]:
    """Every edge of a workflow and its nested graphs: (graph, source, target)."""
    return declared_or_taken_edges(_compile_for_drawing(workflow))


def taken_edges(workflow: str, path: RunPath) -> set[tuple[str, str, str]]:
    """The declared edges whose two nodes ran in succession."""
    return declared_or_taken_edges(_compile_for_drawing(workflow, path), path)


def declared_or_taken_edges(graph: Compiled, path: RunPath | None = None) -> set[tuple[str, str, str]]:
    found: set[tuple[str, str, str]] = set()
    for place, name, declared in _edges_by_place(graph):
        taken = declared if path is None else path.count_nodes_and_edges(place, declared).edges
        found |= {(name, source, target) for source, target in taken}
    return found


@cache
def _edges_by_place(graph: Compiled) -> list[tuple[Place, str, set[tuple[str, str]]]]:
    """The graph and every nested graph: the nodes around it, its name, and its edges."""
    return [
        (place, inner.name or "", {(one.source, one.target) for one in merged_edges(inner)})
        for place, inner in walk_graphs(graph)
    ]


def declared_edges_by_place(
    workflow: Pipeline | str, depth: int, with_session_hooks: bool
) -> dict[str, list[tuple[str, str]]]:
    """Return the declared edges of a workflow and of the graphs within `depth` levels, by the nodes around them."""
    return {
        ".".join(place): [(one.source, one.target) for one in merged_edges(inner)]
        for place, inner in walk_graphs(_compile_for_drawing(workflow, with_session_hooks=with_session_hooks))
        if len(place) < depth
    }


def _compile_for_drawing(
    workflow: str | Pipeline, path: RunPath | None = None, with_session_hooks: bool = False
) -> Compiled:
    """The compiled graph; session hooks, the same around every workflow, are included only if the run took them."""
    declared = load_pipeline(workflow) if isinstance(workflow, str) else workflow
    return _compile_cached(declared, with_session_hooks or (path is not None and path.has_session_hooks))


@cache
def _compile_cached(pipeline: Pipeline, with_session_hooks: bool) -> Compiled:
    return pipeline.compile() if with_session_hooks else pipeline.build().compile()


def sync_diagram_files(folder: Path) -> list[Path]:
    """Write missing or stale files and delete orphans; return the paths that changed."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = _diagram_texts()
    changed = [folder / name for name, text in texts.items() if _read_if_exists(folder / name) != text]
    for path in changed:
        path.write_text(texts[path.name], encoding="utf-8", newline="\n")
    orphans = _find_orphan_diagrams(folder, texts)
    for path in orphans:
        path.unlink()
    return [*changed, *orphans]


def list_diagram_problems(folder: Path) -> list[str]:
    """One line per file that is missing, stale or an orphan, with the command that fixes it."""
    texts = _diagram_texts()
    problems: list[str] = []
    for name, text in texts.items():
        found = _read_if_exists(folder / name)
        if found != text:
            state = "is missing" if found is None else "is stale"
            problems.append(f"{folder / name} {state}. Run: {_FIX}")
    problems += [
        f"{path} draws nothing that exists. Run: {_FIX}" for path in _find_orphan_diagrams(folder, texts)
    ]
    return problems


def _diagram_texts() -> dict[str, str]:
    texts: dict[str, str] = {}
    for name, what in PIPELINES.items():
        graph = load_pipeline(name).build().compile()
        header = _HEADER.format(what=f"{name}: {what}.")
        texts[f"{name}.mmd"] = header + render_mermaid(
            extract_diagram(graph, expansion_depth_for_undrawn_subgraphs(graph))
        )
    for name, chart in CHARTS.items():
        header = _HEADER.format(what=f"{name}: the statechart {chart.__name__}.")
        texts[f"chart-{name}.mmd"] = header + render_mermaid(extract_chart_diagram(name, chart))
    return texts


def expansion_depth_for_undrawn_subgraphs(graph: Compiled) -> int:
    """The depth that expands every subgraph without a diagram of its own."""
    hidden = [inner for inner in nested_graphs(graph).values() if inner.name not in PIPELINES]
    return 1 + max(map(expansion_depth_for_undrawn_subgraphs, hidden), default=0)


def _find_orphan_diagrams(folder: Path, texts: dict[str, str]) -> list[Path]:
    return sorted(p for p in folder.glob("*.mmd") if p.name not in texts)


def _read_if_exists(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


_RESERVED = re.compile("end|graph|subgraph|flowchart|style|class|click|default|linkStyle|direction")
"""Mermaid's keywords."""
_BRACKETS = {
    "start": ("([", "])"),
    "end": ("([", "])"),
    "step": ("[", "]"),
    "graph": ("[[", "]]"),
    "list": ("[", "]"),
    "if": ("{{", "}}"),
    "then": ("[", "]"),
    "note": ("[", "]"),
}
_STYLES = {
    "inner": "fill:#f6f8fa,stroke:#6e7781,color:#24292f",
    "terminal": "fill:#24292f,stroke:#6e7781,color:#ffffff",
    "list": "fill:#ffffff,stroke:#6e7781,color:#57606a,stroke-dasharray:4 3,text-align:left",
    "if": "fill:#f6f8fa,stroke:#6e7781,color:#57606a",
    "then": "fill:#ffffff,stroke:#6e7781,color:#57606a,text-align:left",
    "note": "fill:#fff8c5,stroke:#9a6700,color:#4d2d00,text-align:left",
    "taken": "fill:#ddf4ff,stroke:#0969da,color:#0a3069,stroke-width:2px",
    "here": "fill:#fff8c5,stroke:#9a6700,color:#4d2d00,stroke-width:4px",
    "untaken": "fill:#f6f8fa,stroke:#d0d7de,color:#8c959f",
    "hooks": "fill:#f5f0ff,stroke:#b9a5e0,color:#6f5a9e",
    "questions": "fill:#fff8e5,stroke:#d9b760,color:#7a5d00",
    "errors": "fill:#fff0ee,stroke:#e0a39b,color:#9a4a40",
}
_TAKEN_EDGE, _UNTAKEN_EDGE = "stroke:#0969da,stroke-width:3px", "stroke:#d0d7de,color:#8c959f"


def render_mermaid(diagram: Diagram) -> str:
    """Mermaid flowchart text. Not LangGraph's renderer, as that adds theme lines that vary."""
    lines = ["flowchart TD", *_mermaid_lines(diagram, 1)]
    nodes, edges = diagram.all_nodes(), diagram.all_edges()
    if explained := legend_nodes(nodes):
        nodes += explained
        lines += _mermaid_lines(
            Diagram("", "", (), (), (Diagram("legend", "legend", tuple(explained), ()),)), 1
        )
    members = {"inner": [_mermaid_id(c.id) for c in diagram.all_clusters()]}
    for node in nodes:
        members.setdefault(_mermaid_style_class(node), []).append(_mermaid_id(node.id))
    for name, style in _STYLES.items():
        if members.get(name):
            lines.append(f"    classDef {name} {style}")
            lines.append(f"    class {','.join(members[name])} {name}")
    for style, taken in ((_TAKEN_EDGE, True), (_UNTAKEN_EDGE, False)):
        numbers = [str(i) for i, e in enumerate(edges) if e.count is not None and bool(e.count) == taken]
        if numbers:
            lines.append(f"    linkStyle {','.join(numbers)} {style}")
    return "\n".join(lines) + "\n"


def _mermaid_lines(diagram: Diagram, indent_depth: int) -> list[str]:
    # An edge drawn before its nodes would move them out of their cluster.
    indent = "    " * indent_depth
    lines: list[str] = []
    for node in diagram.nodes:
        left, right = _BRACKETS[node.kind]
        lines.append(f'{indent}{_mermaid_id(node.id)}{left}"{_escape_mermaid(node.label_text)}"{right}')
    for cluster in diagram.clusters:
        lines.append(f'{indent}subgraph {_mermaid_id(cluster.id)}["{_escape_mermaid(cluster.name)}"]')
        lines += [*_mermaid_lines(cluster, indent_depth + 1), f"{indent}end"]
    return lines + [indent + _mermaid_edge(e) for e in diagram.edges]


def _mermaid_edge(edge: Edge) -> str:
    arrow = "==>" if edge.each else "-.->" if edge.part == "then" else "-.-" if edge.part else "-->"
    middle = f'|"{_escape_mermaid(edge.label_text)}"|' if edge.label_text else ""
    return f"{_mermaid_id(edge.source)} {arrow}{middle} {_mermaid_id(edge.target)}"


def _mermaid_style_class(node: Node) -> str:
    if node.mark:
        return "here"
    if node.count is not None:
        return "taken" if node.count else "untaken"
    kinds = {
        "start": "terminal",
        "end": "terminal",
        **{kind: kind for kind in ("list", "if", "then", "note")},
    }
    return kinds.get(node.kind, "" if node.group == "main" else node.group)


def _escape_mermaid(text: str) -> str:
    return (
        text.replace("#", "#35;")
        .replace('"', "#quot;")
        .replace("<", "&lt;")
        .replace(">", "&gt;")
        .replace("\n", "<br/>")
    )


def _mermaid_id(name: str) -> str:
    """A valid Mermaid id: neither dots nor keywords are allowed."""
    plain = "".join(c if c.isalnum() or c == "_" else "_" for c in name)
    return f"{plain}_" if _RESERVED.fullmatch(plain) else plain
