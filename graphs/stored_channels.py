"""stored_channels: LangGraph's names of channels, tasks and paths in a store, and what they say of a run.

Nothing here imports LangGraph: commands that only read rows need these names, too.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from interlock.state.names import ERROR_HANDLER

EDGE = "branch:to:"
"""Prefix of the channel through which an edge triggers a node."""
WHOLE = "__root__"
"""The one channel of a state that has no keys, such as a list of messages."""
RESERVED = "__pregel_"
"""Begins the names by which LangGraph hands answers and savers to its own nodes: a program gives none of them."""
PAYLOADS = "__pregel_tasks"
"""The channel of `Send`s that wait for their tasks."""
INPUT = "__start__"
"""The channel of the graph's input, and the node that turns it into state."""
_PULL = "__pregel_pull"
_PULLED = f"~{_PULL}, "
"""How the stored path of a task begins that edges lead to."""
_SENT = ", node:"
"""Before the node in a path that LangGraph gave none."""
BOOKKEEPING = frozenset(
    {
        "__interrupt__",
        "__error__",
        "__error_source_node__",
        "__resume__",
        "__scheduled__",
        "__pregel_resuming",
    }
)
"""Channels of a task's writes that aren't its update."""


def is_interrupt_id(text: str) -> bool:
    """Whether LangGraph takes a resume's key for the id of an interrupt: 32 hexadecimal digits."""
    return re.fullmatch("[0-9a-f]{32}", text) is not None


def node_named_by_error(error: BaseException) -> str:
    """The node that raised, or whose state couldn't be made, as a note on the error names it; empty: none."""
    notes = "\n".join(getattr(error, "__notes__", ()))
    found = re.search(r"^(?:Before|During) task with name '(.+?)'", notes, re.MULTILINE)
    return found[1] if found else ""


def pending_nodes(values: Mapping[str, Any]) -> Iterator[str]:
    """The nodes that a checkpoint leads to, by its channels' values."""
    yield from nodes_due_by_edge(values)
    yield from (send.node for send in values.get(PAYLOADS, ()))


def has_due_work(values: Mapping[str, Any]) -> bool:
    """Whether a node, a payload or the input waits in a checkpoint with these values."""
    return bool(values.get(PAYLOADS)) or any(key.startswith((EDGE, INPUT)) for key in values)


def nodes_due_by_edge(values: Mapping[str, Any]) -> list[str]:
    """The nodes that edges lead to in a checkpoint with these values; payloads aren't among them."""
    return [key.removeprefix(EDGE) for key in values if key.startswith(EDGE)]


def pending_input(values: dict[str, Any]) -> dict[str, Any]:
    """The input that a checkpoint holds until it is state; empty: it is."""
    return values.get(INPUT, {})


def is_internal_channel(channel: str) -> bool:
    """Whether LangGraph made the channel: no graph declares it."""
    return channel.startswith((EDGE, "__"))


def is_graph_value(channel: str, value: Any) -> bool:
    """Whether what is in a channel is of the graph: its state, input, results or payloads, not how it goes on."""
    is_way = channel.startswith(EDGE) or channel in BOOKKEEPING
    return not is_way and not (channel == PAYLOADS and not value)


def is_input_task(task_path: str) -> bool:
    """Whether a task, by its path, is LangGraph's own first one."""
    return task_path.endswith(INPUT)


def add_node_to_payload_path(task_path: str, node: str) -> str:
    """The path of a task that was sent a payload, with its node, which LangGraph names only in others."""
    return f"{task_path}{_SENT}{node}" if node and not task_path.startswith(_PULLED) else task_path


def edge_task_path(node: str) -> tuple[str, str]:
    """Return the path, as snapshots show it, of a node's task that edges lead to."""
    return _PULL, node


def node_of_task_path(task_path: str) -> str:
    """The node that a task runs, by its stored path; empty: it isn't named there."""
    if task_path.startswith(_PULLED):
        node, _, handled = task_path.removeprefix(_PULLED).partition(", ")
        return f"{ERROR_HANDLER}{node}" if handled.startswith("node_error_handler") else node
    return task_path.rpartition(_SENT)[2] if _SENT in task_path else ""


def find_missing_pending_nodes(values: Mapping[str, Any], nodes: Collection[str]) -> list[str]:
    """Nodes that a checkpoint leads to and a graph with these nodes lacks."""
    return [node for node in pending_nodes(values) if node not in nodes]
