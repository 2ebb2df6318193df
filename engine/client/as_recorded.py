"""as_recorded: snapshots of a run whose code may not run here: what its checkpoints hold, as plain data."""

from collections.abc import Callable, Iterator, Mapping
from itertools import groupby
from operator import itemgetter
from typing import Any

from langgraph.types import PregelTask, StateSnapshot

from interlock.engine.store.connection import Connection
from interlock.engine.store.foreign_saver import task_writes
from interlock.engine.store.saver import Saver, Serde
from interlock.graphs.langgraph_internals import (
    BOOKKEEPING,
    INPUT,
    WHOLE,
    edge_task_path,
    is_internal_channel,
    pending_input,
    pending_nodes,
)
from interlock.graphs.stored_values import OF_PYTHON, make_type_loader


class StoredGraph:
    """Answers as a compiled graph does, without the graph: no reducer, type, edge or serializer of its author runs.

    Of the tasks, those are known that wrote something or wait; graphs inside them aren't shown.
    """

    def __init__(self, conn: Connection, run: str) -> None:
        self._saver = Saver(conn)
        self._saver.serde = Serde(make_type_loader(OF_PYTHON))
        self._nodes = {task: node for _, task, node, _ in task_writes(conn, run)}

    def get_state(self, config: Any, subgraphs: bool = False) -> StateSnapshot:  # noqa: ARG002 - as LangGraph's
        found = self._saver.get_tuple(config)
        is_live = "checkpoint_id" not in config["configurable"]
        missing = StateSnapshot({}, (), config, None, None, None, (), ())
        return self._snapshot(found, is_live) if found else missing

    def get_state_history(
        self, config: Any, *, filter: Any = None, before: Any = None
    ) -> Iterator[StateSnapshot]:
        return map(self._snapshot, self._saver.list(config, filter=filter, before=before))

    def _snapshot(self, found: Any, is_live: bool = False) -> StateSnapshot:
        held: dict[str, Any] = found.checkpoint["channel_values"]
        values = {key: value for key, value in held.items() if key == WHOLE or not is_internal_channel(key)}
        tasks = [*self._tasks(found)]
        over = {task.name for task in tasks if task.result is not None} if is_live else {*()}
        ahead = [node for node in pending_nodes(held) if node not in over]
        ahead += [INPUT] if pending_input(held) else []
        return StateSnapshot(
            values[WHOLE] if values.keys() == {WHOLE} else values,
            tuple(ahead),
            found.config,
            found.metadata,
            found.checkpoint["ts"],
            found.parent_config,
            tuple(tasks),
            tuple(one for task in tasks for one in task.interrupts),
        )

    def _tasks(self, found: Any) -> Iterator[PregelTask]:
        written: list[tuple[str, str, Any]] = [*(found.pending_writes or ())]
        written.sort(key=_TASK)
        for task, writes in groupby(written, key=_TASK):
            each = [(channel, value) for _, channel, value in writes]
            if not (node := self._nodes.get(task, "")):
                continue  # what a resume writes
            given: Mapping[str, Any] = {name: value for name, value in each if not _is_bookkeeping(name)}
            failed = next((value for name, value in each if name == "__error__"), None)
            asked: tuple[Any, ...] = tuple(
                one for name, value in each if name == "__interrupt__" for one in value
            )
            answered = any(name == "__resume__" for name, _ in each)
            open_ = () if given or (answered and not asked) else asked
            yield PregelTask(task, node, edge_task_path(node), failed, open_, None, dict(given) or None)


_TASK: Callable[[tuple[str, str, Any]], str] = itemgetter(0)


def _is_bookkeeping(channel: str) -> bool:
    return channel in BOOKKEEPING or is_internal_channel(channel)
