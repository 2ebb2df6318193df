"""diagrams: pictures of pipelines, taken from the compiled graphs, and of the way a run took through them.

Those in `diagrams/` are generated: one for each pipeline and each statechart.
"""

from functools import cache
from pathlib import Path

from interlock.engine.diagrams.drawing import dot, mermaid, png, svg
from interlock.engine.diagrams.path import RunPath, path_of, run_path
from interlock.engine.diagrams.shape import connections, extract, extract_chart, parts, places
from interlock.graphs import PIPELINES, pipeline
from interlock.graphs._pipeline import Compiled, Pipeline
from interlock.state.charts import CHARTS
from interlock.state.errors import UserError

__all__ = ["RunPath", "check", "declared_edges", "path_of", "render", "run_path", "taken_edges", "write"]

_FIX = "interlock diagrams --write"
_HEADER = f"%% {{what}}\n%% Generated from the code by: {_FIX}\n"
FORMATS = ("mermaid", "dot", "svg", "png")


def render(
    workflow: str | Pipeline, format: str = "mermaid", depth: int = 1, path: RunPath | None = None
) -> str | bytes:
    """A diagram of a workflow, `depth` levels of graphs drawn open, or of a statechart.

    Text for mermaid and dot, else bytes.

    With `path`, what the run took is coloured and counted, and the rest is grey.
    """
    if format not in FORMATS:
        raise UserError(f"No diagram format {format!r}; expected one of {', '.join(FORMATS)}.")
    if depth < 1:
        raise UserError(f"Diagram depth {depth} draws nothing; expected 1 or more: --depth 1")
    name = workflow if isinstance(workflow, str) else workflow.name
    if (chart := CHARTS.get(name)) and depth > 1:
        raise UserError(f"The statechart {name!r} has no graphs inside it to draw open. Leave --depth out.")
    diagram = extract_chart(name, chart) if chart else extract(_graph(workflow, path), depth, path)
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


def _graph(workflow: str | Pipeline, path: RunPath | None = None) -> Compiled:
    """With its session's hooks only where a run took them: they stand around every workflow in the same way."""
    declared = pipeline(workflow) if isinstance(workflow, str) else workflow
    session = path is not None and bool(path.entered & {"session_start", "session_end"})
    return _compiled(declared, session)


@cache
def _compiled(declared: Pipeline, hooked: bool) -> Compiled:
    return declared.compile() if hooked else declared.build().compile()


def write(folder: Path) -> list[Path]:
    """Write what is missing or stale and remove what nothing stands for; the paths that changed."""
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
    """One line for each file that is missing, stale or an orphan, with the command that mends it."""
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
    """The depth that opens every part that no diagram of its own shows."""
    hidden = [part for part in parts(graph).values() if part.name not in PIPELINES]
    return 1 + max(map(own_depth, hidden), default=0)


def _orphans(folder: Path, texts: dict[str, str]) -> list[Path]:
    return sorted(p for p in folder.glob("*.mmd") if p.name not in texts)


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None
