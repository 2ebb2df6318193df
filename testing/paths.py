"""paths: tables of what is said and which way a workflow takes; together they take every edge that it declares."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from interlock.engine.diagrams import declared_edges
from interlock.graphs._pipeline import Pipeline
from interlock.testing.stage import Stage, loaded, reads_from


@dataclass(frozen=True)
class Scene:
    """One row: an input, what the model and people say, and the nodes that must run, in this order."""

    input: Mapping[str, Any]
    path: str
    """`plan verify fix verify`: the nodes of the workflow's own graph, one word each."""
    replies: Sequence[Mapping[str, Any]] = ()
    said: Sequence[str] = ()
    """What people say, one a request (`said`)."""
    status: str = "done"
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    given: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """As of `Stage`."""


def check_paths(workflow: str | Path | Pipeline, scenes: Iterable[Scene], folder: Path) -> None:
    """Play each scene in a folder of its own below `folder`.

    Raises `AssertionError` for one that took another way or ended otherwise, and for declared edges that none took.
    """
    named = loaded(workflow)
    name = named if isinstance(named, str) else named.name
    declared = {(source, target) for graph, source, target in declared_edges(name) if graph == name}
    for number, scene in enumerate(scenes):
        stage = Stage(folder / str(number), scene.replies, scene.files, scene.given)
        outcome = stage.play(named, scene.input, reads_from(scene.said))
        took = " ".join(stage.path(outcome.run))
        assert took == scene.path, f"scene {number} took {took!r}, expected {scene.path!r}"
        assert outcome.status == scene.status, f"scene {number} ended as {outcome.status!r}: {outcome.error}"
        declared -= stage.edges(outcome)
    assert not declared, f"no scene takes {sorted(declared)}"
