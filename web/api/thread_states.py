"""thread_states: the values and snapshots of threads, as programs read them."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from interlock.engine.client import Options, RunRow, threads
from interlock.engine.client.api_rows import ApiRow
from interlock.web.api.drive_recorder import checkpoint_address, interrupt_json_with_request
from interlock.web.api.payloads import matches_filter, read_object_field, to_json_types
from interlock.web.api.prompt_dialect import to_langchain_messages
from interlock.web.endpoints import RefusedError

_CACHE_SIZE = 256
_CANCELLED_TASK_ERROR = "CancelledError()"
"""A task's error if it was cancelled: it goes on."""
_PLACES = ("checkpoint", "parent_checkpoint", "checkpoint_id", "parent_checkpoint_id")
_NONE: Mapping[str, Any] = {"values": {}, "next": [], "tasks": [], "interrupts": []}
_EMPTY: Mapping[str, Any] = {**_NONE, **dict.fromkeys((*_PLACES, "metadata", "created_at"))}


class ThreadStates:
    """Reads states of threads, and keeps the values that it read last."""

    def __init__(self, options: Options, home: Path) -> None:
        self.options, self.home = options, home
        self.cached: dict[str, dict[str, Any]] = {}
        """Thread → its latest values, as of a look: looking changes no row."""

    def load_latest_values_and_interrupts(self, thread: ApiRow, row: RunRow, status: str) -> dict[str, Any]:
        """Return values and interrupts as they were when a drive last ended."""
        latest = self.newest_known_values_and_interrupts(thread)
        if status == "busy":
            latest = latest or {"values": None, "interrupts": None}
        elif latest.get("at") != row.updated:
            latest = self.cached[thread.id] = self.read_values_and_interrupts(thread, row)
            if len(self.cached) > _CACHE_SIZE:
                del self.cached[next(iter(self.cached))]
        return {name: latest[name] for name in ("values", "interrupts") if latest[name] is not None}

    def newest_known_values_and_interrupts(self, thread: ApiRow) -> dict[str, Any]:
        """Return values and interrupts that were noted last; empty: none were."""
        noted, seen = read_object_field(thread.body, "latest"), self.cached.get(thread.id, {})
        return max(noted, seen, key=lambda one: one.get("at", 0))

    def read_values_and_interrupts(self, thread: ApiRow, row: RunRow) -> dict[str, Any]:
        """Return values and interrupts now; those before, if the types of the graph refuse the state."""
        try:
            values, interrupts = self._read_current_values_and_interrupts(row)
        except (ValueError, TypeError):
            values, interrupts = self.newest_known_values_and_interrupts(thread).get("values"), {}
        return {"at": row.updated, "values": values, "interrupts": interrupts}

    def _read_current_values_and_interrupts(self, row: RunRow) -> tuple[Any, dict[str, Any] | None]:
        with threads.open_graph(self.options, row.run) as found:
            snapshot = found.app.get_state(found.config)
        if snapshot.created_at is None:
            return None, None
        interrupts = {
            task.id: [interrupt_json_with_request(self.options, row.run, one) for one in task.interrupts]
            for task in snapshot.tasks
            if task.interrupts
        }
        return self._snapshot_values_with_messages(row, found, snapshot), to_json_types(interrupts)

    def _snapshot_values_with_messages(self, row: RunRow, graph: threads.OpenedGraph, snapshot: Any) -> Any:
        values = to_json_types(snapshot.values)
        if not isinstance(values, dict):
            return values
        values = cast("dict[str, Any]", values)
        if (head := graph.conversation_head(values)) is None:
            return values
        said = threads.read_conversation(self.home, row.run, head)
        return {**values, "messages": to_langchain_messages(said)}

    def _snapshot_json(
        self, thread: ApiRow, row: RunRow, graph: threads.OpenedGraph, snapshot: Any
    ) -> dict[str, Any]:
        """Return a snapshot as programs read it."""
        tasks = [self._task_json(thread, row, graph, task) for task in snapshot.tasks]
        at, before = (
            _checkpoint_address_with_id_or_none(one, thread)
            for one in (snapshot.config, snapshot.parent_config)
        )
        metadata = {**snapshot.metadata, "thread_id": thread.id} if snapshot.metadata is not None else None
        return to_json_types(
            {
                "values": self._snapshot_values_with_messages(row, graph, snapshot)
                if snapshot.created_at
                else {},
                "next": [*snapshot.next],
                "tasks": tasks,
                "metadata": metadata,
                "created_at": snapshot.created_at,
                "checkpoint": at,
                "parent_checkpoint": before,
                "interrupts": [one for task in tasks for one in task["interrupts"]],
                "checkpoint_id": at and at["checkpoint_id"],
                "parent_checkpoint_id": before and before["checkpoint_id"],
            }
        )

    def _task_json(
        self, thread: ApiRow, row: RunRow, graph: threads.OpenedGraph, task: Any
    ) -> dict[str, Any]:
        inner = task.state if hasattr(task.state, "tasks") else None
        return {
            "id": task.id,
            "name": task.name,
            "path": [*task.path],
            "error": str(task.error) if task.error and str(task.error) != _CANCELLED_TASK_ERROR else None,
            "interrupts": [
                interrupt_json_with_request(self.options, row.run, one) for one in task.interrupts
            ],
            "checkpoint": thread_checkpoint_address(task.state, thread)
            if task.state and inner is None
            else None,
            "state": self._snapshot_json(thread, row, graph, inner) if inner else None,
            "result": task.result,
        }

    def has_matching_cached_values(self, thread_id: str, wanted: Mapping[str, Any]) -> bool:
        return not wanted or matches_filter(wanted, self.cached.get(thread_id, {}).get("values"))

    def read_state_json(
        self, thread: ApiRow, row: RunRow | None, checkpoint: Mapping[str, Any], subgraphs: bool
    ) -> Any:
        """Return the state of a thread as programs read it, now or at a checkpoint. Raises `RefusedError`."""
        if row is None:
            return _EMPTY
        with threads.open_graph(self.options, row.run) as found, _convert_invalid_state_errors():
            snapshot = threads.read_snapshot(found, checkpoint, subgraphs)
        is_named = snapshot.created_at is not None or checkpoint.get("checkpoint_id")
        return self._snapshot_json(thread, row, found, snapshot) if is_named else _EMPTY

    def read_history(
        self,
        thread: ApiRow,
        row: RunRow,
        limit: int,
        before: Mapping[str, Any],
        checkpoint: Mapping[str, Any],
        metadata: Mapping[str, Any],
    ) -> list[Any]:
        """Return snapshots of a thread as programs read them, the newest first. Raises `RefusedError`."""
        with threads.open_graph(self.options, row.run) as found, _convert_invalid_state_errors():
            taken = threads.read_state_history(found, limit, before, checkpoint, metadata)
            return [self._snapshot_json(thread, row, found, one) for one in taken]


@contextmanager
def _convert_invalid_state_errors() -> Generator[None]:
    """Raise `RefusedError` for a state that the types of its graph refuse."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise RefusedError(400, str(error)) from error


def thread_checkpoint_address(config: Any, thread: ApiRow) -> dict[str, Any] | None:
    found = checkpoint_address(config)
    return {**found, "thread_id": thread.id} if found else None


def _checkpoint_address_with_id_or_none(config: Any, thread: ApiRow) -> dict[str, Any] | None:
    found = thread_checkpoint_address(config, thread)
    return found if found and "checkpoint_id" in found else None
