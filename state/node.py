"""node: what a node reads and writes, declared where it is defined."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from interlock.state.errors import SetupError

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
    outside: bool = False
    """It reads files, an index or a clock, which may be others later: a replay has what it wrote then, where it stands
    in the graph that a user started. What parts read is in records, or in the journal, or the part says so, too."""
    timeout_s: float | None = None
    """Seconds for one try; then its label is `timeout` where it has that, else the run fails and can be resumed."""
    retries: int = 0
    """Further tries after an error; then its label is `failed` where it has that, else the run fails with the error."""
    retry_wait_s: float = 1.0
    """Before the first of them; each wait is twice the one before."""


def node(
    *,
    reads: tuple[str, ...] = (),
    writes: tuple[str, ...] = (),
    labels: tuple[str, ...] = (),
    pure: bool = False,
    recorded: bool = False,
    outside: bool = False,
    timeout_s: float | None = None,
    retries: int = 0,
    retry_wait_s: float = 1.0,
) -> Callable[[_F], _F]:
    """Declare a node. Keys that it reads are what it is given; an update with any other key than `writes` is an error.

    A node with `labels` also writes `label`. Raises `SetupError` for limits that can't be.
    """
    if retries < 0 or retry_wait_s < 0 or (timeout_s is not None and timeout_s <= 0):
        raise SetupError(
            f"retries={retries}, retry_wait_s={retry_wait_s}, timeout_s={timeout_s}: expected more."
        )
    written = (*writes, "label") if labels and "label" not in writes else writes

    def mark(function: _F) -> _F:
        spec = NodeSpec(reads, written, labels, pure, recorded, outside, timeout_s, retries, retry_wait_s)
        setattr(function, _ATTRIBUTE, spec)
        return function

    return mark


def spec_of(function: Callable[..., Any]) -> NodeSpec | None:
    return getattr(function, _ATTRIBUTE, None)


def inside(task: str) -> str:
    """Id of what a graph that is a node does in that node's own task, or superstep."""
    return f"{task}.0"
