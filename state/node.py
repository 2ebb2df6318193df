"""node: what a node reads and writes, declared where it is defined."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

_F = TypeVar("_F", bound=Callable[..., Any])
_ATTRIBUTE = "__interlock_node__"


@dataclass(frozen=True)
class NodeSpec:
    """A node's declaration: keys of the state of the graph in which it stands, which gives their types."""

    reads: tuple[str, ...]
    writes: tuple[str, ...]
    labels: tuple[str, ...] = ()
    """What it may write as `label`; an edge that maps labels has exactly these."""
    pure: bool = False
    """It has no effect outside its update and asks no service that has one: it may share a superstep with its
    neighbours, and run twice after a kill."""
    recorded: bool = False
    """What it does outside its update is recorded, and found again when it runs again: it may share a superstep with
    pure nodes around it."""


def node(
    *,
    reads: tuple[str, ...] = (),
    writes: tuple[str, ...] = (),
    labels: tuple[str, ...] = (),
    pure: bool = False,
    recorded: bool = False,
) -> Callable[[_F], _F]:
    """Declare a node. Keys that it reads are what it is given; an update with any other key than `writes` is an error.

    A node with `labels` also writes `label`.
    """
    written = (*writes, "label") if labels and "label" not in writes else writes

    def mark(function: _F) -> _F:
        setattr(function, _ATTRIBUTE, NodeSpec(reads, written, labels, pure, recorded))
        return function

    return mark


def spec_of(function: Callable[..., Any]) -> NodeSpec | None:
    return getattr(function, _ATTRIBUTE, None)


def inside(task: str) -> str:
    """Id of what a graph that is a node does in that node's own task, or superstep."""
    return f"{task}.0"
