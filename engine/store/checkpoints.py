"""checkpoints: a run's root checkpoints, which people know as steps, and its state at each."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from interlock.engine.store import checkpoint_of, select
from interlock.graphs.langgraph_internals import (
    BOOKKEEPING,
    due_nodes,
    is_internal_channel,
    node_of_task_path,
)
from interlock.state.errors import UserError


@dataclass(frozen=True)
class RootCheckpoint:
    """A stored step of a run's own graph."""

    id: str
    step: int
    source: str
    """input | loop | update | fork"""
    kind: str
    saved: bytes

    @cached_property
    def _read(self) -> dict[str, Any]:
        return checkpoint_of(self.kind, self.saved)

    @property
    def made(self) -> float:
        """Unix time, seconds."""
        return datetime.fromisoformat(self._read["ts"]).timestamp()

    @property
    def values(self) -> dict[str, Any]:
        """The channels' values, LangGraph's own among them."""
        return self._read["channel_values"]


def root_checkpoints(home: Path, run: str) -> list[RootCheckpoint]:
    """Oldest first. A step repeated after a crash has two: the newer counts."""
    rows = select(
        home,
        "select checkpoint_id, metadata, type, checkpoint from checkpoints "
        "where thread_id = $1 and checkpoint_ns = '' order by checkpoint_id",
        run,
    )
    found: list[RootCheckpoint] = []
    for name, metadata, kind, saved in rows:
        details: Mapping[str, Any] = json.loads(metadata)
        found.append(RootCheckpoint(name, details.get("step", 0), details.get("source", ""), kind, saved))
    return found


def checkpoint_at(home: Path, run: str, step: int | None = None) -> tuple[RootCheckpoint, bool]:
    """The checkpoint of a root step, by default the newest, and whether it is the newest.

    Raises `UserError` naming the existing steps.
    """
    there = root_checkpoints(home, run)
    if not there:
        raise UserError(
            f"Run {run!r} has no checkpoint yet. Look again, or resume it: interlock resume {run}"
        )
    found = [one for one in there if step in (None, one.step)]
    if not found:
        raise UserError(
            f"Run {run!r} has no step {step}: it has {there[0].step} to {there[-1].step}. See: interlock history {run}"
        )
    return found[-1], found[-1] is there[-1]


def state_at(home: Path, run: str, step: int | None = None) -> dict[str, Any]:
    """The state after a root step, by default the newest. Raises `UserError` naming the existing steps."""
    values = checkpoint_at(home, run, step)[0].values
    return {key: value for key, value in values.items() if not is_internal_channel(key)}


def current_state(home: Path, run: str) -> dict[str, Any]:
    """The newest state; empty for a run that was killed before its first checkpoint."""
    try:
        return state_at(home, run)
    except UserError:
        return {}


def state_within(home: Path, run: str) -> dict[str, Any]:
    """The newest state of a tool batch in progress or waiting; empty if there is none."""
    rows = select(
        home,
        "select type, checkpoint, checkpoint_ns from checkpoints where thread_id = $1 "
        "and checkpoint_ns like 'tools:%' order by checkpoint_id desc",
        run,
    )
    batch = next((row for row in rows if "|" not in row["checkpoint_ns"]), None)
    return checkpoint_of(batch["type"], batch["checkpoint"])["channel_values"] if batch else {}


class Due(NamedTuple):
    """A node that runs next, or was running when its process ended."""

    namespace: str
    """Of its graph, with whole task ids."""
    node: str

    @property
    def place(self) -> tuple[str, ...]:
        """Names of the nodes around it, outermost first, and its own."""
        return (*(part.partition(":")[0] for part in self.namespace.split("|") if part), self.node)


def due_within(home: Path, run: str) -> list[Due]:
    """Return the nodes that the newest checkpoints of a run's graphs lead to and that haven't ended, innermost ones
    only. Empty for a run that is over, or whose next tasks are payloads.
    """
    newest = select(
        home,
        "select checkpoint_ns, checkpoint_id, type, checkpoint from checkpoints c where thread_id = $1 "
        "and checkpoint_id = (select max(checkpoint_id) from checkpoints n where n.thread_id = c.thread_id "
        "and n.checkpoint_ns = c.checkpoint_ns)",
        run,
    )
    over = {
        (row["checkpoint_ns"], row["checkpoint_id"], node_of_task_path(row["task_path"]))
        for row in select(
            home,
            "select checkpoint_ns, checkpoint_id, task_path, channel from writes where thread_id = $1",
            run,
        )
        if row["channel"] not in BOOKKEEPING
    }
    found = [
        Due(row["checkpoint_ns"], node)
        for row in newest
        for node in due_nodes(checkpoint_of(row["type"], row["checkpoint"])["channel_values"])
        if (row["checkpoint_ns"], row["checkpoint_id"], node) not in over
    ]
    inside = [f"{due.namespace}|" for due in found]
    return [due for due in found if not any(f"|{ns}".startswith(_begin(due)) for ns in inside)]


def _begin(due: Due) -> str:
    """How the namespaces of graphs inside a node begin."""
    return f"|{due.namespace}|{due.node}:" if due.namespace else f"|{due.node}:"
