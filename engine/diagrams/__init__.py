"""diagrams: pictures of pipelines, taken from the compiled graphs, and of the way a run took through them."""

from interlock.engine.diagrams.dot import dot, png, svg
from interlock.engine.diagrams.extract import extract, extract_chart
from interlock.engine.diagrams.files import check, write
from interlock.engine.diagrams.mermaid import mermaid
from interlock.engine.diagrams.path import RunPath, run_path
from interlock.engine.diagrams.wiring import connections, places
from interlock.graphs import pipeline
from interlock.graphs._pipeline import Compiled
from interlock.state.charts import CHARTS
from interlock.state.errors import UserError

__all__ = ["RunPath", "check", "declared_edges", "render", "run_path", "taken_edges", "write"]

FORMATS = ("mermaid", "dot", "svg", "png")


def render(
    workflow: str, format: str = "mermaid", depth: int = 1, path: RunPath | None = None
) -> str | bytes:
    """A diagram of a workflow, `depth` levels of graphs drawn open, or of a statechart.

    Text for mermaid and dot, else bytes.

    With `path`, what the run took is coloured and counted, and the rest is grey.
    """
    if format not in FORMATS:
        raise UserError(f"No diagram format {format!r}; expected one of {', '.join(FORMATS)}.")
    if depth < 1:
        raise UserError(f"Diagram depth {depth} draws nothing; expected 1 or more: --depth 1")
    if (chart := CHARTS.get(workflow)) and depth > 1:
        raise UserError(
            f"The statechart {workflow!r} has no graphs inside it to draw open. Leave --depth out."
        )
    diagram = extract_chart(workflow, chart) if chart else extract(_graph(workflow, path), depth, path)
    if format == "mermaid":
        return mermaid(diagram)
    source = dot(diagram)
    return source if format == "dot" else svg(source) if format == "svg" else png(source)


def declared_edges(workflow: str) -> set[tuple[str, str, str]]:
    """Every edge of a workflow and of the graphs inside it: (graph, source, target)."""
    return edges(_graph(workflow))


def taken_edges(workflow: str, path: RunPath) -> set[tuple[str, str, str]]:
    """The declared edges whose two nodes ran one after the other."""
    return edges(_graph(workflow, path), path)


def edges(graph: Compiled, path: RunPath | None = None) -> set[tuple[str, str, str]]:
    found: set[tuple[str, str, str]] = set()
    for place, inner in places(graph):
        declared = {(w.source, w.target) for w in connections(inner)}
        taken = declared if path is None else path.through(place, declared).edges
        found |= {(inner.name or "", source, target) for source, target in taken}
    return found


def _graph(workflow: str, path: RunPath | None = None) -> Compiled:
    """With its session's hooks only where a run took them: they stand around every workflow in the same way."""
    declared = pipeline(workflow)
    if path is not None and path.entered & {"session_start", "session_end"}:
        return declared.compile()
    return declared.build().compile()
