"""node: what a node reads and writes, declared where it is defined."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from interlock.state.errors import RunError, SetupError

if TYPE_CHECKING:
    from langgraph.runtime import Runtime

_F = TypeVar("_F", bound=Callable[..., Any])
_ATTRIBUTE = "__interlock_node__"
Group = Literal["main", "hooks", "questions", "errors"]


class Part(NamedTuple):
    """Something that a node chooses among by itself; a diagram draws it beside the node."""

    when: str
    """Which one is chosen, or when these are."""
    what: tuple[str, ...]
    numbers: tuple[int, ...] = ()
    """Their places among all parts of the node, which are drawn as branches, each behind its condition."""


@dataclass(frozen=True)
class NodeSpec:
    """A node's declaration: keys of the state of its graph, which defines their types."""

    reads: tuple[str, ...]
    writes: tuple[str, ...]
    labels: tuple[str, ...] = ()
    """Values it may write to `label`; an edge that maps labels has exactly these."""
    nondeterministic: bool = False
    """Reads files, an index or a clock, which may change: on replay its recorded update is used, for nodes of the
    top-level graph. What subgraphs read is in records or the journal, or the subgraph is declared so too."""
    timeout_s: float | None = None
    """Timeout of one try; the label is then `timeout` if declared, else the run fails and can be resumed."""
    retries: int = 0
    """Retries after an error; the label is then `failed` if declared, else the run fails with the error."""
    retry_wait_s: float = 1.0
    """Wait before the first retry; doubles with each one."""
    parts: tuple[Part, ...] = ()
    """What it chooses among: from the same tables that it works by."""
    group: Group = "main"
    """What a diagram draws it as: on the main path, or beside it."""
    moves: tuple[str, ...] = ()
    """Moves it may make of a channel that obeys a chart, each an event or several after each other."""


def node(
    *,
    reads: tuple[str, ...] = (),
    writes: tuple[str, ...] = (),
    labels: tuple[str, ...] = (),
    nondeterministic: bool = False,
    timeout_s: float | None = None,
    retries: int = 0,
    retry_wait_s: float = 1.0,
    parts: tuple[Part, ...] = (),
    group: Group = "main",
    moves: tuple[str, ...] = (),
) -> Callable[[_F], _F]:
    """Declare a node. It receives only the keys in `reads`; updating a key not in `writes` is an error.

    A node with `labels` also writes `label`. Raises `SetupError` for impossible limits, and for moves of an approval
    mode that only a person makes.
    """
    if retries < 0 or retry_wait_s < 0 or (timeout_s is not None and timeout_s <= 0):
        raise SetupError(
            f"retries={retries}, retry_wait_s={retry_wait_s}, timeout_s={timeout_s}: expected more."
        )
    if event := find_person_only_event(moves):
        raise SetupError(f"moves={moves!r}: only a person makes {event!r}.")
    written = (*writes, "label") if labels and "label" not in writes else writes

    def mark(function: _F) -> _F:
        limits = (timeout_s, retries, retry_wait_s)
        spec = NodeSpec(reads, written, labels, nondeterministic, *limits, parts, group, moves)
        return attach_node_spec(function, spec)

    return mark


_PERSONS = frozenset({"use_default", "use_auto_edit", "use_yolo"})
"""Events of `ApprovalModeChart` that widen what runs without approval."""


def find_person_only_event(moves: tuple[str, ...]) -> str | None:
    """Return the first event that is a person's alone."""
    events = (event for move in moves for event in re.split("[ >*]+", move))
    return next((event for event in events if event in _PERSONS), None)


def attach_node_spec(function: _F, spec: NodeSpec | None) -> _F:
    setattr(function, _ATTRIBUTE, spec)
    return function


def find_node_spec(function: Callable[..., Any]) -> NodeSpec | None:
    return getattr(function, _ATTRIBUTE, None)


def inner_task_id(task: str) -> str:
    """Id for what a subgraph does in its parent node's task or superstep."""
    return f"{task}.0"


def require_task_id(runtime: "Runtime[Any]", requester: str) -> str:
    """The requesting graph task: replies are recorded under it, so that a kill doesn't pay twice."""
    if runtime.execution_info is None:
        raise RunError(f"{requester} was asked outside a graph.")
    return runtime.execution_info.task_id
