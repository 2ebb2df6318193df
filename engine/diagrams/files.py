"""files: the generated diagrams in `diagrams/`, one for each pipeline and each statechart."""

from pathlib import Path

from interlock.engine.diagrams.extract import extract, extract_chart
from interlock.engine.diagrams.mermaid import mermaid
from interlock.engine.diagrams.wiring import parts
from interlock.graphs import PIPELINES, pipeline
from interlock.graphs._pipeline import Compiled
from interlock.state.charts import CHARTS

_FIX = "interlock diagrams --write"
_HEADER = f"%% {{what}}\n%% Generated from the code by: {_FIX}\n"


def write(folder: Path) -> list[Path]:
    """Write what is missing or stale and remove what nothing stands for; the paths that changed."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = _texts()
    changed: list[Path] = []
    for name, text in texts.items():
        path = folder / name
        if _read(path) != text:
            path.write_text(text, encoding="utf-8", newline="\n")
            changed.append(path)
    for path in _orphans(folder, texts):
        path.unlink()
        changed.append(path)
    return changed


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
