"""studio: the examples as graphs of LangGraph's own server; `langgraph.json` names them."""

from pathlib import Path

from interlock.engine.studio import graph

_HERE = Path(__file__).parent
fix, triage, release = (
    graph(_HERE / name / ".interlock" / "workflows" / f"{name}.py") for name in ("fix", "triage", "release")
)
