"""mermaid: a diagram as Mermaid flowchart text. Our own renderer: LangGraph's adds theme lines that change."""

from interlock.engine.diagrams.model import Diagram, Edge, Node

_RESERVED = {
    "end",
    "graph",
    "subgraph",
    "flowchart",
    "style",
    "class",
    "click",
    "default",
    "linkStyle",
    "direction",
}
_SHAPES = {"start": ("([", "])"), "end": ("([", "])"), "step": ("[", "]"), "graph": ("[[", "]]")}
_STYLES = {
    "inner": "fill:#f6f8fa,stroke:#6e7781,color:#24292f",
    "terminal": "fill:#24292f,stroke:#6e7781,color:#ffffff",
    "taken": "fill:#ddf4ff,stroke:#0969da,color:#0a3069,stroke-width:2px",
    "untaken": "fill:#f6f8fa,stroke:#d0d7de,color:#8c959f",
}
_TAKEN, _UNTAKEN = "stroke:#0969da,stroke-width:3px", "stroke:#d0d7de,color:#8c959f"


def mermaid(diagram: Diagram) -> str:
    """The whole text, with a newline at its end."""
    lines = ["flowchart TD", *_body(diagram, 1)]
    nodes, edges = diagram.all_nodes(), diagram.all_edges()
    members = {"inner": [_id(c.id) for c in diagram.all_clusters()]}
    for node in nodes:
        members.setdefault(_class(node), []).append(_id(node.id))
    for name, style in _STYLES.items():
        if members.get(name):
            lines.append(f"    classDef {name} {style}")
            lines.append(f"    class {','.join(members[name])} {name}")
    for style, taken in ((_TAKEN, True), (_UNTAKEN, False)):
        numbers = [str(i) for i, e in enumerate(edges) if e.count is not None and bool(e.count) == taken]
        if numbers:
            lines.append(f"    linkStyle {','.join(numbers)} {style}")
    return "\n".join(lines) + "\n"


def _body(diagram: Diagram, depth: int) -> list[str]:
    # An edge drawn before its nodes would pull them out of their cluster.
    indent = "    " * depth
    lines: list[str] = []
    for node in diagram.nodes:
        left, right = _SHAPES[node.kind]
        lines.append(f'{indent}{_id(node.id)}{left}"{_text(node.name, node.count)}"{right}')
    for cluster in diagram.clusters:
        lines.append(f'{indent}subgraph {_id(cluster.id)}["{_escape(cluster.name)}"]')
        lines += [*_body(cluster, depth + 1), f"{indent}end"]
    return lines + [indent + _edge(e) for e in diagram.edges]


def _edge(edge: Edge) -> str:
    arrow = "==>" if edge.each else "-->"
    label = _text(" · ".join(edge.labels), edge.count if edge.count and edge.count > 1 else None)
    middle = f'|"{label}"|' if label else ""
    return f"{_id(edge.source)} {arrow}{middle} {_id(edge.target)}"


def _class(node: Node) -> str:
    if node.count is not None:
        return "taken" if node.count else "untaken"
    return "terminal" if node.kind in ("start", "end") else ""


def _text(name: str, count: int | None) -> str:
    return _escape(f"{name} ×{count}".strip() if count else name)


def _escape(text: str) -> str:
    return text.replace("#", "#35;").replace('"', "#quot;").replace("<", "&lt;").replace(">", "&gt;")


def _id(name: str) -> str:
    """Mermaid reads neither dots nor its own keywords as names."""
    plain = "".join(c if c.isalnum() or c == "_" else "_" for c in name)
    return f"{plain}_" if plain in _RESERVED else plain
