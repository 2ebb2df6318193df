"""saver: LangGraph's checkpoints in the store, with `runs`, `approvals` and `steps` in the same transactions."""

import json
from collections.abc import (
    AsyncIterator,
    Callable,
    Container,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_checkpoint_id,
    get_checkpoint_metadata,
)
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.types import Interrupt

from interlock.engine.store.approvals import read_request_keys_by_answered_interrupt
from interlock.engine.store.checkpoints import (
    compress_row_if_long,
    decode_checkpoint_to_plain_values,
    decompress_row,
)
from interlock.engine.store.connection import Connection
from interlock.engine.store.runs import read_ended_subtask_status
from interlock.engine.store.steps import StepLog
from interlock.engine.store.tables import TABLE, Condition, where_sql
from interlock.graphs import langgraph_internals, stored_channels
from interlock.graphs.stored_values import (
    Names,
    StorableTypes,
    describe_unstorable_value,
    make_class_preserving_encoder,
    make_type_loader,
)
from interlock.state.charts import RunChart, next_state
from interlock.state.clock import unix_time
from interlock.state.errors import ENDED_WELL, RunError, exception_line
from interlock.state.journal import Effects
from interlock.state.task import CHILD
from interlock.state.text import replace_surrogates

Notice = Callable[[str, Any], None]


def ignore_stored_value(_what: str, _value: Any) -> None:
    """For stores that nobody watches."""


class Serde(JsonPlusSerializer):
    """Also reads what earlier versions wrote, under other row types. `docs/internals.md#stored-data-runs-nothing`."""

    def __init__(self, known: Names | None = None) -> None:
        """`known`: classes of a user's own workflow: with them, tuples, dictionaries of `collections` and objects come
        back as what they were.
        """
        loader = None if known is None else make_type_loader(known)
        super().__init__(allowed_msgpack_modules=None, __unpack_ext_hook__=loader)
        self._keeps_classes = known is not None

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        if not self._keeps_classes or obj is None or isinstance(obj, bytes | bytearray):
            return compress_row_if_long(*super().dumps_typed(obj))
        return compress_row_if_long("msgpack", make_class_preserving_encoder()(obj))

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        return super().loads_typed(decompress_row(*data))


@dataclass
class _BufferedRows:
    """Buffered rows of one thread's namespace."""

    checkpoints: list[tuple[RunnableConfig, Checkpoint, CheckpointMetadata, ChannelVersions]]
    writes: list[tuple[RunnableConfig, Sequence[tuple[str, Any]], str, str]]


class Saver(BaseCheckpointSaver[int]):
    """A saver on the store's connection; async methods run inline (`docs/internals.md#one-inline-saver`).

    On a driver's connection, checkpoints and writes are buffered until its next commit
    (`docs/internals.md#what-a-commit-waits-for`). Until then a nested graph's rows are replaced by its newer ones, and
    dropped once it is over: most never reach the disk.
    """

    def __init__(
        self,
        conn: Connection,
        steps: StepLog | None = None,
        outcome: str = "status",
        types: Iterable[tuple[str, ...]] | None = None,
    ) -> None:
        """`outcome`: the state key that says how the run's pipeline ended. `types`: of a workflow of the user's own:
        classes (module, name) that its checkpoints may hold beside those that its program imports. Its state comes back
        with the types that its nodes wrote, or is refused.
        """
        self._keeps_classes, self.known = types is not None, _NO_CLASSES
        if types is not None:
            self.known = StorableTypes(frozenset(types) | langgraph_internals.always_storable_types())
        super().__init__(serde=Serde(self.known if self._keeps_classes else None))
        self.conn = conn
        self.steps = steps or StepLog()
        self._outcome = outcome
        self.on_stored_value: Notice = ignore_stored_value
        """Told of each value that is stored as it is, and what it is."""
        self._waiting: dict[tuple[str, str], _BufferedRows] = {}
        self._stored: dict[str, set[str]] = {}
        """Thread → nested namespaces with rows on disk."""
        self._statuses: dict[str, str] = {}
        if conn.buffers:
            conn.saver = cast(Any, self)  # the type checker sees this module's own types twice

    @property
    def has_buffered_rows(self) -> bool:
        return bool(self._waiting)

    def write_buffered_checkpoints(self) -> None:
        for rows in self._waiting.values():
            for saved in rows.checkpoints:
                self._write_checkpoint(*saved)
            for saved in rows.writes:
                self._write_task_writes(*saved)

    def mark_buffer_written(self) -> None:
        for thread, ns in self._waiting:
            if ns:
                self._stored_nested_namespaces(thread).add(ns)
        self._waiting.clear()

    def drop_buffer(self) -> None:
        for kept in (self._waiting, self._stored, self._statuses):
            kept.clear()

    def get_next_version(self, current: Any, channel: None) -> Any:  # noqa: ARG002 - LangGraph's signature
        """Integers: 18 bytes less per channel and step than the default (`docs/internals.md#small-checkpoints`).

        A thread begun by another saver has texts, which begin with the number.
        """
        if isinstance(current, str):
            return f"{int(current.partition('.')[0]) + 1:032}"
        return (current or 0) + 1

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        thread, ns = _thread_and_namespace(config)
        if (
            ns
            and self.conn.buffers
            and (thread, ns) not in self._waiting
            and ns not in self._stored_nested_namespaces(thread)
        ):
            return None
        where, values = _NAMESPACE, [thread, ns]
        if (name := get_checkpoint_id(config)) is not None:
            where, values = f"{where} and checkpoint_id = $3", [*values, name]
        return next(self._find_checkpoints(where, values, " limit 1"), None)

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Newest first. `filter`: what their metadata must have."""
        given = (config or {}).get("configurable", {})
        asked = {name: given[name] for name in TABLE["checkpoints"].key if given.get(name) is not None}
        where, values = where_sql(asked)
        where = where or "true"
        if before is not None and (name := get_checkpoint_id(before)):
            where, values = f"{where} and checkpoint_id < ${len(values) + 1}", [*values, name]
        found = self._find_checkpoints(where, values)
        wanted = (one for one in found if (filter or {}).items() <= {**one.metadata}.items())
        yield from islice(wanted, limit)

    def delete_thread(self, thread_id: str) -> None:
        with self.conn.transaction() as conn:
            for table in _TABLES:
                conn.delete(table, {"thread_id": thread_id})
        self._stored.pop(thread_id, None)

    def _find_checkpoints(
        self, where: str, values: Sequence[object], limit: str = ""
    ) -> Iterator[CheckpointTuple]:
        self.conn.flush()
        newest = (
            f"select {', '.join(_COLUMNS)} from checkpoints where {where} order by checkpoint_id desc{limit}"
        )
        for *place, parent, kind, saved, metadata in self.conn.execute(newest, values).fetchall():
            writes = self.conn.execute(
                f"select task_id, channel, type, value from writes where {_NAMESPACE} and checkpoint_id = $3 "
                "order by task_path, task_id, idx",
                place,
            )
            thread, ns, name = place
            yield CheckpointTuple(
                _make_config(thread, ns, name),
                self.serde.loads_typed((kind, saved)),
                json.loads(metadata),
                _make_config(thread, ns, parent) if parent else None,
                [(task, channel, self.serde.loads_typed((k, value))) for task, channel, k, value in writes],
            )

    def _write_checkpoint(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        _versions: ChannelVersions,
    ) -> None:
        about = json.dumps(get_checkpoint_metadata(config, metadata), ensure_ascii=False)
        parent = config["configurable"].get("checkpoint_id")  # pyright: ignore[reportTypedDictNotRequiredAccess]
        saved = (*self.serde.dumps_typed(checkpoint), about.encode("utf-8", "ignore"))
        row = zip(_COLUMNS, (*_thread_and_namespace(config), checkpoint["id"], parent, *saved), strict=True)
        self.conn.insert("checkpoints", dict(row), "replace")

    def _write_task_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task: str, task_path: str
    ) -> None:
        place = (*_thread_and_namespace(config), str(config["configurable"]["checkpoint_id"]))  # pyright: ignore[reportTypedDictNotRequiredAccess]
        where = {**dict(zip(_COLUMNS, place, strict=False)), "task_id": task, "task_path": task_path}
        again = "replace" if all(channel in WRITES_IDX_MAP for channel, _ in writes) else "keep"
        for number, (channel, value) in enumerate(writes):
            if channel == "__error__" and isinstance(value, BaseException):
                value = _bounded_repr(value)  # its own code may raise
            kind, data = self.serde.dumps_typed(value)
            row = {"idx": WRITES_IDX_MAP.get(channel, number), "channel": channel, "type": kind}
            self.conn.insert("writes", {**where, **row, "value": data}, again)

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Save; a root checkpoint also updates its `runs` row, and drops nested rows that are over."""
        thread, ns = _thread_and_namespace(config)
        values, saved = checkpoint["channel_values"], (config, checkpoint, metadata, new_versions)
        self.check_storable({key: values[key] for key in new_versions if key in values})
        with self._buffer_or_commit_at_end():
            if ns:
                if metadata.get("source") == "input":  # it started in the task of its own node
                    self.steps.save_inner_task_steps(
                        self.conn, thread, checkpoint["id"], ns.rpartition(":")[2]
                    )
                self._waiting[thread, ns] = _BufferedRows([saved], [])  # its earlier rows are obsolete
            else:
                if metadata.get("source") == "loop" and config["configurable"].get("checkpoint_id"):  # pyright: ignore[reportTypedDictNotRequiredAccess]
                    self._drop_superstep_rows(thread)
                self._buffered_rows(thread, "").checkpoints.append(saved)
                self._update_run_row_and_root_step(thread, checkpoint, metadata)
        return _make_config(thread, ns, checkpoint["id"])

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Save a task's writes, and with them its step, or (committed at once) the request it waits for."""
        thread, ns = _thread_and_namespace(config)
        channels = {channel for channel, _ in writes}
        kept = {channel: value for channel, value in writes if channel not in stored_channels.BOOKKEEPING}
        self.check_storable(kept, self.steps.find_node_of_task(task_id))
        if "__error__" in channels:  # a failed task is given its newest answer again: it isn't another one
            writes = [(channel, value) for channel, value in writes if channel != "__resume__"]
        path = stored_channels.add_node_to_payload_path(task_path, self.steps.find_node_of_task(task_id))
        with self._buffer_or_commit_at_end():
            self._buffered_rows(thread, ns).writes.append((config, writes, task_id, path))
            for channel, value in writes:
                if channel == "__interrupt__":
                    self._link_requests_to_interrupts(thread, value)
            # A resumed task also writes the answer it took; only further writes make it a step.
            if not channels <= stored_channels.BOOKKEEPING and not channels & {
                "__interrupt__",
                "__error__",
            }:
                self._drop_rows_inside_task(thread, task_id)
                if not stored_channels.is_input_task(task_path):
                    checkpoint = str(config["configurable"]["checkpoint_id"])  # pyright: ignore[reportTypedDictNotRequiredAccess]
                    self.steps.save_finished_task_steps(self.conn, thread, ns, checkpoint, task_id, task_path)
            for channel, error in writes:
                if channel == "__error__" and isinstance(error, Exception):  # not what cancelled it
                    checkpoint = str(config["configurable"]["checkpoint_id"])  # pyright: ignore[reportTypedDictNotRequiredAccess]
                    why = exception_line(error)
                    self.steps.save_failed_task_step(self.conn, thread, ns, checkpoint, task_id, why)
        if "__interrupt__" in channels:
            self.conn.flush()

    @contextmanager
    def _buffer_or_commit_at_end(self) -> Generator[None]:
        """Buffer what is saved inside until the driver's next commit; other connections commit it at the end."""
        if self.conn.buffers:
            with (
                self.conn.write_lock
            ):  # a thread that commits meanwhile would forget rows that it didn't write
                yield
            return
        with self.conn.transaction():
            yield
            self.write_buffered_checkpoints()
        self.mark_buffer_written()

    def _buffered_rows(self, thread: str, ns: str) -> _BufferedRows:
        return self._waiting.setdefault((thread, ns), _BufferedRows([], []))

    def _stored_nested_namespaces(self, thread: str) -> set[str]:
        if thread not in self._stored:
            found = self.conn.execute_raw(
                "select checkpoint_ns from checkpoints where thread_id = $1 and checkpoint_ns > '' "
                "union select checkpoint_ns from writes where thread_id = $1 and checkpoint_ns > ''",
                (thread,),
            )
            self._stored[thread] = {ns for (ns,) in found}
        return self._stored[thread]

    def _drop_rows_inside_task(self, thread: str, task: str) -> None:
        """Drop the rows of graphs inside a finished task: stale ones would show answered questions."""
        over = [key for key in self._waiting if key[0] == thread and f":{task}" in key[1]]
        for key in over:
            del self._waiting[key]
        for ns in [ns for ns in self._stored_nested_namespaces(thread) if f":{task}" in ns]:
            self._delete_namespace(thread, ns)

    def _delete_namespace(self, thread: str, ns: str) -> None:
        for table in _TABLES:
            self.conn.delete(table, {"thread_id": thread, "checkpoint_ns": ns})
        self._stored_nested_namespaces(thread).discard(ns)

    def _drop_superstep_rows(self, thread: str) -> None:
        """Finish the root's superstep: no nested graph stays open, and the new checkpoint has its tasks' writes."""
        over = [
            ns
            for owner, ns in self._waiting
            if owner == thread and ns and self._is_dropped_after_superstep(ns)
        ]
        for ns in over:
            del self._waiting[thread, ns]
        self._buffered_rows(thread, "").writes.clear()
        for ns in [
            ns for ns in self._stored_nested_namespaces(thread) if self._is_dropped_after_superstep(ns)
        ]:
            self._delete_namespace(thread, ns)

    def _update_run_row_and_root_step(
        self, thread: str, checkpoint: Checkpoint, metadata: CheckpointMetadata
    ) -> None:
        status, outcome = self._status_and_outcome_from_values(
            checkpoint["channel_values"], self._current_run_status(thread)
        )
        self._statuses[thread] = status
        self.steps.root_step = metadata.get("step", 0)
        self.steps.on_root_step(self.steps.root_step)
        row = {"step": metadata.get("step", 0), "updated": unix_time(), "status": status, "outcome": outcome}
        self.conn.update("runs", row, {"run": thread})

    def _status_and_outcome_from_values(self, values: dict[str, Any], before: str) -> tuple[str, str]:
        return compute_status_and_outcome(values, self._outcome, before)

    def _current_run_status(self, thread: str) -> str:
        """The run's status so far."""
        if thread not in self._statuses:
            query = "select status from runs where run = $1"
            row = self.conn.execute(query, (thread,), tables=("runs",)).fetchone()
            self._statuses[thread] = row[0] if row else "open"
        return self._statuses[thread]

    def _is_dropped_after_superstep(self, namespace: str) -> bool:  # noqa: ARG002 - for graphs that keep some
        """Whether a nested graph's rows end with the superstep that it ran in."""
        return True

    def _link_requests_to_interrupts(self, thread: str, interrupts: Any) -> None:
        for item in interrupts:
            if isinstance(item, Interrupt):
                key: object = item.value  # pyright: ignore[reportUnknownMemberType,reportUnknownVariableType]
                where = {"run": thread, "key": key, "interrupt": Condition("is distinct from", item.id)}
                self.conn.update("approvals", {"interrupt": item.id}, where)

    def use_state_serde_for_effects(self, effects: Effects) -> None:
        """Store results of effects as the state is stored."""
        if self._keeps_classes:
            effects.serde, effects.storable_classes = self.serde, self.known
            effects.on_stored_value = self.on_stored_value

    def record_graph_code(self, run: str, app: Any) -> None:
        """Keep what a later replay compares of the graph as it is now."""

    def mark_run_done_if_needed(self, run: str) -> None:
        """Note that a run is done, where its checkpoints don't say so."""

    def find_unknown_state_keys(self, keys: Iterable[str], known: Container[str]) -> Sequence[str]:
        """Return stored keys of a state that would strand a run, as today's graph doesn't know them."""
        return [key for key in keys if key not in known and not stored_channels.is_internal_channel(key)]

    def ask_and_list_open_breakpoints(self, run: str, app: Any, snapshot: Any) -> set[str]:  # noqa: ARG002 - a LangGraph graph has some
        """Return the breakpoints that a run stands at and nobody has let it pass yet."""
        return set()

    def read_resume_values_by_interrupt(self, run: str, interrupts: Mapping[str, Any]) -> dict[str, Any]:
        """Return interrupt id → what it is resumed with, for those with an answer or whose subtask is over.

        `interrupts`: interrupt id → its value.
        """
        answered = read_request_keys_by_answered_interrupt(self.conn, run)
        return {
            name: True
            for name, value in interrupts.items()
            if name in answered
            or ((child := awaited_subtask(value)) and read_ended_subtask_status(self.conn, child))
        }

    def check_storable(self, values: Mapping[str, Any], node: str = "") -> None:
        """Raise `RunError` that names the key and the type of what wouldn't come back as it is."""
        if not self._keeps_classes:
            return
        for key, value in values.items():
            if node:
                self.on_stored_value(f"State key {key!r}, which node {node!r} wrote,", value)
            if wrong := describe_unstorable_value(value, self.known, self.serde):
                writer = node or self.steps.find_sole_writer_of_key(key)
                where = f"Node {writer!r} failed: state" if writer else "State"
                raise RunError(
                    f"{where} key {key!r} holds a value that can't be stored: {wrong}. Expected JSON-like values, "
                    "messages, collections, or pydantic models, dataclasses, enums and named tuples of a module."
                )

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return self.get_tuple(config)

    async def aput(self, *saved: Any, **named: Any) -> RunnableConfig:
        return self.put(*saved, **named)

    async def aput_writes(  # LangGraph reads the signature
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        self.put_writes(config, writes, task_id, task_path)

    async def alist(self, *args: Any, **named: Any) -> AsyncIterator[CheckpointTuple]:
        for item in list(self.list(*args, **named)):
            yield item

    async def adelete_thread(self, thread_id: str) -> None:
        self.delete_thread(thread_id)


_TABLES = ("checkpoints", "writes")
_NO_CLASSES: Names = frozenset[tuple[str, ...]]()
_COLUMNS = (*TABLE["checkpoints"].key, "parent_checkpoint_id", "type", "checkpoint", "metadata")
_NAMESPACE = "thread_id = $1 and checkpoint_ns = $2"


def _bounded_repr(error: BaseException, max_length: int = 2_000) -> str:
    try:
        text = repr(error)
    except Exception:
        text = exception_line(error)
    return replace_surrogates(text if len(text) <= max_length else f"{text[: max_length - 1]}…")


def decode_row_value(row: tuple[str, bytes]) -> Any:
    """The value of a checkpoint's or a write's row (type, bytes), with the contents of objects in their place: their
    classes may not be imported here.
    """
    return (
        decode_checkpoint_to_plain_values(*row) if row[0].startswith("msgpack") else Serde().loads_typed(row)
    )


def _make_config(thread: str, ns: str, name: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread, "checkpoint_ns": ns, "checkpoint_id": name}}


def _thread_and_namespace(config: RunnableConfig) -> tuple[str, str]:
    """Thread and namespace."""
    where = config["configurable"]  # pyright: ignore[reportTypedDictNotRequiredAccess]
    return str(where["thread_id"]), str(where.get("checkpoint_ns", ""))


def compute_status_and_outcome(
    values: dict[str, Any], outcome_key: str, before: str = "open"
) -> tuple[str, str]:
    """A root checkpoint's (status, outcome): `open` while a node or a task is due, else how it ended.

    `docs/internals.md#when-a-run-is-over`.

    `before`: the run's status so far. Raises `RunError` for a move that its chart doesn't have.
    """
    # Who drives is in the lease; an open run that writes a checkpoint is running.
    running = "running" if before == "open" else next_state(RunChart, before, "drive")
    if stored_channels.has_due_work(values):
        return "open", ""
    outcome = str(values.get(outcome_key) or "done")
    event = "finish" if outcome in ENDED_WELL else "cancel" if outcome == "cancelled" else "fail"
    return next_state(RunChart, running, event), "done" if event == "finish" else outcome


def advance_checkpoint_id_clock(conn: Connection, thread: str) -> None:
    """Make new checkpoint ids sort after the run's existing ones, even if the clock stepped back.

    `docs/internals.md#the-id-clock`.
    """
    (newest,) = conn.execute(
        "select max(checkpoint_id) from checkpoints where thread_id = $1", (thread,)
    ).fetchone()
    if newest:
        langgraph_internals.advance_id_clock(newest)


def awaited_subtask(interrupted: object) -> str:
    """Return the run that an interrupt waits for; empty: it waits for a person."""
    if isinstance(interrupted, str) and interrupted.startswith(CHILD):
        return interrupted.removeprefix(CHILD)
    return ""
