"""diagrams: drawings of graphs and of runs, for the front ends that show or write them."""

from interlock.engine.optional_rooms import require_optional_part

require_optional_part("diagrams", "Drawings need", "engine/diagrams")

from interlock.engine.diagrams import (  # noqa: E402 (without the folder, people read the line above)
    GROUPS,
    RunPath,
    build_run_path,
    declared_edges_by_place,
    list_diagram_problems,
    render_diagram,
    sync_diagram_files,
)

__all__ = [
    "GROUPS",
    "RunPath",
    "build_run_path",
    "declared_edges_by_place",
    "list_diagram_problems",
    "render_diagram",
    "sync_diagram_files",
]
