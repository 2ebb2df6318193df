"""foreign_saver: the checkpoints of somebody's own graph, and the requests that its interrupts are."""

import threading
from collections.abc import Callable, Container, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import ChannelVersions, Checkpoint, CheckpointMetadata, CheckpointTuple
from langgraph.store.base import BaseStore, Item, Op, PutOp, Result
from langgraph.types import Interrupt
from typing_extensions import override

from interlock.engine.store.connection import Connection
from interlock.engine.store.runs import mark_run_done, read_options, set_run_option
from interlock.engine.store.saver import Saver
from interlock.engine.store.steps import StepLog
from interlock.graphs import langgraph_internals, stored_channels
from interlock.graphs.foreign_node_sources import node_digests_and_fixed_channels
from interlock.graphs.foreign_requests import (
    make_breakpoint_request,
    requests_from_interrupt,
    resume_value_from_answers,
)
from interlock.graphs.pipeline import Pipeline
from interlock.graphs.stored_values import StoredForm, describe_unstorable_value
from interlock.state.calls import Answer, ApprovalRequest
from interlock.state.clock import unix_time
from interlock.state.errors import RunError
from interlock.state.journal import Approvals, Effects


@dataclass(frozen=True)
class OwnForm:
    """A value in the form that the graph's own serializer gives it, where Interlock's has none."""

    kind: str
    data: bytes
    packed: str = ""
    """The type of Interlock's own form, which is what was given to that serializer; empty: the value itself was."""


class ForeignSaver(Saver):
    """Commits every checkpoint and every task's writes at once: a node that isn't ours may have had effects.

    Its methods may be called by threads: a node without `async` may invoke a graph of its own.
    """

    def __init__(
        self, conn: Connection, steps: StepLog, form: StoredForm, approvals: Approvals, memory: Any
    ) -> None:
        """`memory`: the store that nodes find as `runtime.store`."""
        own_form = (OwnForm.__module__, OwnForm.__name__)
        super().__init__(conn, steps, types={*form.types, own_form})
        self.memory = memory
        self._own, self._hides = form.serde, form.hides
        self._approvals = approvals
        self._one = threading.RLock()

    @override
    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        values = self._encode_values_if_needed(checkpoint["channel_values"])
        with self._one:
            made = super().put(config, {**checkpoint, "channel_values": values}, metadata, new_versions)
            self.conn.flush()
        return made

    def _encode_values_if_needed(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {key: self._encode_value_if_needed(key, value) for key, value in values.items()}

    def _encode_value_if_needed(self, channel: str, value: Any) -> Any:
        """The value, or what the graph's own serializer makes of it, if that brings it back. Raises `RunError` for
        one that can't be hidden as all of the state is."""
        if self._own is None or not stored_channels.is_graph_value(channel, value):
            return value
        is_ours = not describe_unstorable_value(value, self.known, self.serde)
        if is_ours and not self._hides:
            return value
        if is_ours:
            kind, data = self.serde.dumps_typed(value)
            if made := self._encode_with_graph_serializer(data, kind):
                return made
        made = self._encode_with_graph_serializer(value)
        if made is None and self._hides:
            raise RunError(
                f"{channel or 'A result'!r} holds a value that the graph's own serializer doesn't bring back: "
                f"{type(value).__name__}. Nothing of it was stored, because Interlock's own form is readable."
            )
        return made or value

    def _encode_with_graph_serializer(self, value: Any, packed: str = "") -> OwnForm | None:
        """None: its serializer doesn't bring the value back."""
        try:
            kind, data = self._own.dumps_typed(value)
            back = self._own.loads_typed((kind, data))
        except Exception:  # whatever its own methods raise
            return None
        is_same = back == value if packed else type(back) is type(value)
        return OwnForm(kind, data, packed) if is_same else None

    def _decode_value_if_encoded(self, value: Any) -> Any:
        if not isinstance(value, OwnForm):
            return value
        if self._own is None:
            raise RunError(
                f"A value was stored by the graph's own serializer ({value.kind!r}), which it lost since."
            )
        found = self._own.loads_typed((value.kind, value.data))
        return self.serde.loads_typed((value.packed, found)) if value.packed else found

    @override
    def use_state_serde_for_effects(self, effects: Effects) -> None:
        super().use_state_serde_for_effects(effects)
        if self._hides:
            effects.serde = _EffectSerde(
                self.serde, self._encode_value_if_needed, self._decode_value_if_encoded
            )

    def _decode_checkpoint_and_writes(self, found: CheckpointTuple) -> CheckpointTuple:
        values = {
            key: self._decode_value_if_encoded(value)
            for key, value in found.checkpoint["channel_values"].items()
        }
        writes = [
            (task, channel, self._decode_value_if_encoded(value))
            for task, channel, value in found.pending_writes or ()
        ]
        return found._replace(
            checkpoint={**found.checkpoint, "channel_values": values}, pending_writes=writes
        )

    @override
    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        writes = [(channel, self._encode_value_if_needed(channel, value)) for channel, value in writes]
        given = dict(writes)
        kept = {key: value for key, value in given.items() if key not in stored_channels.BOOKKEEPING}
        self.check_storable(kept, self.steps.find_node_of_task(task_id))
        with self._one:
            thread = str(config["configurable"]["thread_id"])  # pyright: ignore[reportTypedDictNotRequiredAccess]
            for item in given.get("__interrupt__", ()):
                if isinstance(item, Interrupt):
                    self.write_interrupt_requests(thread, item, self.steps.find_node_of_task(task_id))
            super().put_writes(config, writes, task_id, task_path)
            if not given.keys() <= stored_channels.BOOKKEEPING:  # it is over, and asks nothing more
                self._approvals.withdraw_requests(f"interrupt:{task_id}:")
            self.conn.flush()

    @override
    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        with self._one:
            found = super().get_tuple(config)
        return found and self._decode_checkpoint_and_writes(found)

    def import_checkpoint(self, run: str, found: CheckpointTuple) -> None:
        """Write a checkpoint of another saver's thread, with its tasks' writes, as the run's. Raises `RunError`."""
        values = self._encode_values_if_needed(found.checkpoint["channel_values"])
        self.check_storable(values)
        saved: Any = {**found.checkpoint, "channel_values": values}
        place: Any = {**found.config["configurable"], "thread_id": run}  # pyright: ignore[reportTypedDictNotRequiredAccess]
        parent = (found.parent_config or {}).get("configurable", {}).get("checkpoint_id")
        self._write_checkpoint(
            {"configurable": {**place, "checkpoint_id": parent}}, saved, found.metadata, {}
        )
        tasks: dict[str, list[tuple[str, Any]]] = {}
        for task, channel, value in found.pending_writes or ():
            tasks.setdefault(task, []).append((channel, self._encode_value_if_needed(channel, value)))
        for task, writes in tasks.items():
            self._write_task_writes({"configurable": place}, writes, task, "")

    def write_interrupt_requests(self, thread: str, interrupt: Any, node: str) -> None:
        """Write the interrupt's requests; a graph around the node's writes the same interrupt again."""
        node = node or "node"
        written = (
            "select key from approvals where run = $1 and key like 'interrupt:%:' || $2 || ':%' order by seq"
        )
        keys = [
            key
            for (key,) in self.conn.execute(written, (thread, interrupt.id), tables=("approvals",)).fetchall()
        ]
        if not keys and isinstance(interrupt.value, str) and self._approvals.find_request(interrupt.value):
            keys.append(interrupt.value)  # an effect asks what became of it
        for request in [] if keys else requests_from_interrupt(interrupt, node):
            self._approvals.write_request(request)
            keys.append(request.key)
        self.conn.update("approvals", {"interrupt": None}, {"run": thread, "interrupt": interrupt.id})
        for key in keys:
            self.conn.update("approvals", {"interrupt": interrupt.id}, {"run": thread, "key": key})

    @override
    def record_graph_code(self, run: str, app: Any) -> None:
        record_node_sources_if_changed(self.conn, run, node_digests_and_fixed_channels(app))

    @override
    def mark_run_done_if_needed(self, run: str) -> None:
        mark_run_done(self.conn, run)

    @override
    def find_unknown_state_keys(self, keys: Iterable[str], known: Container[str]) -> Sequence[str]:
        return ()  # LangGraph leaves out what its graph has no key for

    @override
    def ask_and_list_open_breakpoints(self, run: str, app: Any, snapshot: Any) -> set[str]:
        if not langgraph_internals.has_breakpoints(app):
            return set()
        found = langgraph_internals.find_reached_breakpoints(
            app, snapshot, self._list_nodes_of_last_superstep
        )
        return {
            name
            for name, *about in found
            if self._write_request_and_check_unanswered(run, name, make_breakpoint_request(name, *about))
        }

    @override
    def read_resume_values_by_interrupt(self, run: str, interrupts: Mapping[str, Any]) -> dict[str, Any]:
        return {
            name: given
            for name, given in read_resume_values_of_answered_interrupts(self.conn, run).items()
            if name in interrupts
        }

    def _list_nodes_of_last_superstep(self, snapshot: Any) -> list[str]:
        """The nodes of the superstep that ended with this checkpoint."""
        if not snapshot.metadata or snapshot.metadata["source"] != "loop":
            return []
        parent, run = (snapshot.parent_config["configurable"][key] for key in ("checkpoint_id", "thread_id"))
        nodes = "select distinct node from steps where run = $1 and superstep like $2 || '%' order by node"
        return [
            node
            for (node,) in self.conn.execute(nodes, (run, parent[-12:]), tables=("step_rows", "step_kinds"))
        ]

    def _write_request_and_check_unanswered(
        self, thread: str, checkpoint: str, request: ApprovalRequest
    ) -> bool:
        """Ask at a breakpoint, once; whether it still waits for a person."""
        self._approvals.write_request(request)
        with self.conn.transaction() as conn:
            where = {"run": thread, "key": request.key, "interrupt": None}
            conn.update("approvals", {"interrupt": checkpoint}, where)
        return self._approvals.find_answer(request.key) is None

    @override
    def _link_requests_to_interrupts(self, thread: str, interrupts: Any) -> None:
        """They are noted already."""

    @override
    def _status_and_outcome_from_values(self, values: dict[str, Any], before: str) -> tuple[str, str]:
        return "open", ""

    @override
    def _is_dropped_after_superstep(self, namespace: str) -> bool:
        return ":" in namespace  # without, a graph that remembers from call to call

    @override
    def list(self, *args: Any, **named: Any) -> Iterator[CheckpointTuple]:
        yield from map(self._decode_checkpoint_and_writes, super().list(*args, **named))


@dataclass(frozen=True)
class _EffectSerde:
    """Stores what effects return as the state of the graph is stored."""

    serde: Any
    encode_value: Callable[[str, Any], Any]
    decode_value: Callable[[Any], Any]

    def dumps_typed(self, value: Any) -> tuple[str, bytes]:
        return self.serde.dumps_typed(self.encode_value("", value))

    def loads_typed(self, row: tuple[str, bytes]) -> Any:
        return self.decode_value(self.serde.loads_typed(row))


def make_saver(
    workflow: Pipeline, conn: Connection, steps: StepLog, approvals: Approvals, path: Path
) -> Saver:
    """Return the saver of a workflow's runs. `path`: of the store, which holds the memories of graphs, too."""
    match workflow.checkpoint_values:
        case "json":
            return Saver(conn, steps, workflow.outcome)
        case "classes":
            return Saver(conn, steps, workflow.outcome, types=())
        case "any":
            return ForeignSaver(
                conn, steps, workflow.require_thread_format(), approvals, LazyMemoryStore(path)
            )


@contextmanager
def open_memory_store(path: Path) -> Generator[BaseStore]:
    """LangGraph's store in this file. Raises `RunError` without the extra `memory`."""
    try:
        from langgraph.store.sqlite import SqliteStore
    except ImportError:
        raise RunError(
            "Memories of LangGraph graphs (runtime.store) need the extra `memory`. Run: interlock install memory"
        ) from None

    class AnyValue(SqliteStore):
        """Keeps values that are no JSON object, too, as LangGraph's other stores do."""

        def batch(self, ops: Iterable[Op]) -> list[Result]:
            return [
                _unwrap_bare_values(found) for found in super().batch([_wrap_bare_value(op) for op in ops])
            ]

    with AnyValue.from_conn_string(str(path)) as store:
        store.setup()
        yield store


_BARE = "interlock: a value that is no object"


def _wrap_bare_value(op: Op) -> Op:
    if isinstance(op, PutOp) and not isinstance(op.value, dict | None):
        return op._replace(value={_BARE: op.value})
    return op


def _unwrap_bare_values(found: Result) -> Result:
    for item in cast("list[Any]", found if isinstance(found, list) else [found]):
        if isinstance(item, Item) and {*item.value} == {_BARE}:
            item.value = item.value[_BARE]
    return found


class LazyMemoryStore(BaseStore):
    """LangGraph's store of what outlives runs (`runtime.store`), in our file; opened on first use: most need none."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._open = ExitStack()
        self._made: BaseStore | None = None

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        if self._made is None:
            self._made = self._open.enter_context(open_memory_store(self._path))
        return self._made.batch(ops)

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        return self.batch(ops)


def record_node_sources_if_changed(conn: Connection, run: str, sources: Mapping[str, Any]) -> None:
    """Keep what a run's nodes are made of from now on, if that has changed: a replay compares it."""
    known = read_node_sources(read_options(conn, run))
    if not known or known[-1]["nodes"] != sources:
        drives = [*known, {"since": unix_time(), "nodes": {**sources}}]
        set_run_option(conn, run, "node_sources", {"drives": drives})


def read_node_sources(options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What the nodes were made of, and since when (Unix time), oldest first; empty: an earlier version drove it."""
    kept: dict[str, Any] = options.get("node_sources") or {}
    return kept.get("drives", [])


def list_channels_written_by_root_tasks(conn: Connection, run: str) -> list[tuple[str, str, str, str]]:
    """Checkpoint, task, its node and a channel, of all that the tasks of the run's own graph wrote."""
    rows = conn.execute(
        "select checkpoint_id, task_id, task_path, channel from writes where thread_id = $1 and checkpoint_ns = '' "
        "order by checkpoint_id, task_path, task_id, idx",
        (run,),
        tables=("writes",),
    )
    return [
        (name, task, stored_channels.node_of_task_path(path), channel)
        for name, task, path, channel in rows.fetchall()
    ]


def read_resume_values_of_answered_interrupts(conn: Connection, run: str) -> dict[str, Any]:
    """Interrupt id → the value to resume it with, for those whose requests are all answered."""
    rows = conn.execute(
        "select interrupt, request, answer from approvals where run = $1 and interrupt is not null "
        "and superseded = 0 order by interrupt, seq",
        (run,),
        tables=("approvals",),
    ).fetchall()
    found: dict[str, Any] = {}
    for name, several in groupby(rows, key=lambda row: row[0]):
        asked = [
            (ApprovalRequest.model_validate_json(r), a and Answer.model_validate_json(a))
            for _, r, a in several
        ]
        if all(answer for _, answer in asked):
            found[name] = resume_value_from_answers(asked)
    return found
