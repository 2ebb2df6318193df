"""diagrams: drawings of graphs and of runs, for the front ends that show or write them."""

from interlock.engine.diagrams import (
    GROUPS,
    RunPath,
    check_diagrams,
    declared_by_place,
    path_of,
    render_diagram,
    write_diagrams,
)

__all__ = [
    "GROUPS",
    "RunPath",
    "check_diagrams",
    "declared_by_place",
    "path_of",
    "render_diagram",
    "write_diagrams",
]
