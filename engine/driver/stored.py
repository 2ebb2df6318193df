"""stored: whether today's graphs can go on from what an earlier version, or an earlier workflow file, left of a run.

LangGraph leaves out silently what it doesn't know: a run before a node that is gone would just count as done.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from langgraph.types import StateSnapshot

from interlock.engine.store.saver import Saver
from interlock.graphs._pipeline import Graph
from interlock.state.errors import RunError

_BRANCH = "branch:to:"
"""LangGraph's channel of an edge that leads to a node."""


def check_stored(run: str, graph: Graph, app: Any, snapshot: StateSnapshot, saver: Saver) -> None:
    """Raises `RunError` where a pending node is gone, or a stored channel that the graph doesn't have (`engine.md` 22).

    `app`: the graph, compiled (LangGraph doesn't type its channels). Graphs inside it are looked at as far as they are
    under way.
    """
    found = saver.get_tuple(snapshot.config)
    values: dict[str, Any] = found.checkpoint["channel_values"] if found else {}
    if lost := lost_nodes(values, app):
        raise _refused(run, f"it stands before node {lost[0]!r} of {graph.name!r}")
    known = {*app.channels, *graph.retired}
    if lost := [key for key in values if key not in known and not key.startswith((_BRANCH, "__"))]:
        raise _refused(run, f"its state holds {lost[0]!r} of {graph.name!r}")
    for task in snapshot.tasks:
        part = graph.parts.get(task.name)
        if part is not None and isinstance(task.state, StateSnapshot):
            check_stored(run, part, part.compiled, task.state, saver)


def lost_nodes(values: Mapping[str, Any], app: Any) -> list[str]:
    """Nodes that a checkpoint leads to, and that the compiled graph doesn't have."""
    return [node for node in _pending(values) if node not in app.nodes]


def _pending(values: Mapping[str, Any]) -> Iterator[str]:
    yield from (key.removeprefix(_BRANCH) for key in values if key.startswith(_BRANCH))
    yield from (send.node for send in values.get("__pregel_tasks", ()))


def _refused(run: str, what: str) -> RunError:
    return RunError(
        f"Run {run!r} can't be resumed: {what}, which this version doesn't have. Resume it with the version or the "
        f"workflow file that began it, or start another; what it did: interlock show {run}"
    )
