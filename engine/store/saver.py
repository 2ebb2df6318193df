"""saver: LangGraph's checkpoints in the store, with `runs`, `approvals` and `steps` in the same transactions."""

import sqlite3
import time
from collections.abc import AsyncIterator, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import ChannelVersions, Checkpoint, CheckpointMetadata, CheckpointTuple
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.types import Interrupt

from interlock.engine.store import packed, unpacked
from interlock.engine.store.steps import StepLog
from interlock.graphs import _langgraph
from interlock.services.sqlite import Buffered, later, transaction
from interlock.state.charts import RunChart, step
from interlock.state.errors import ENDED_WELL


class Serde(JsonPlusSerializer):
    """Also reads what earlier versions wrote, under other row types."""

    def __init__(self) -> None:
        super().__init__(allowed_msgpack_modules=None)

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        return packed(*super().dumps_typed(obj))

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        return super().loads_typed(unpacked(*data))


@dataclass
class _Rows:
    """Buffered rows of one thread's namespace."""

    checkpoints: list[tuple[RunnableConfig, Checkpoint, CheckpointMetadata, ChannelVersions]]
    writes: list[tuple[RunnableConfig, Sequence[tuple[str, Any]], str, str]]


class Saver(SqliteSaver):
    """`SqliteSaver` on our connection; async methods run inline (`engine.md` 1).

    On a driver's connection, checkpoints and writes are buffered until its next commit (`engine.md` 23). Until then a
    nested graph's rows are replaced by its newer ones, and dropped once it is over: most never reach the disk.
    """

    def __init__(
        self, conn: sqlite3.Connection, steps: StepLog | None = None, outcome: str = "status"
    ) -> None:
        """`outcome`: the state key that says how the run's pipeline ended."""
        super().__init__(conn, serde=Serde())
        self.is_setup = True  # the store created the tables
        self.steps = steps or StepLog()
        self._outcome = outcome
        self._waiting: dict[tuple[str, str], _Rows] = {}
        self._stored: dict[str, set[str]] = {}
        """Thread → nested namespaces with rows on disk."""
        if isinstance(conn, Buffered):
            conn.join(self)

    @property
    def waits(self) -> bool:
        return bool(self._waiting)

    def write(self) -> None:
        for rows in self._waiting.values():
            for saved in rows.checkpoints:
                super().put(*saved)
            for saved in rows.writes:
                super().put_writes(*saved)

    def written(self) -> None:
        for thread, ns in self._waiting:
            if ns:
                self._nested(thread).add(ns)
        self._waiting.clear()

    def give_up(self) -> None:
        self._waiting.clear()
        self._stored.clear()

    @contextmanager
    def cursor(self, transaction: bool = True) -> Generator[sqlite3.Cursor]:
        """A cursor in the open transaction or its own; without one, buffered rows are committed before it reads."""
        cursor = self.conn.cursor()
        try:
            if transaction:
                with _transaction(self.conn):
                    yield cursor
            else:
                self._commit()
                yield cursor
        finally:
            cursor.close()

    def get_next_version(self, current: int | None, channel: None) -> int:  # noqa: ARG002 # pyright: ignore[reportIncompatibleMethodOverride]
        """Integers: 18 bytes less per channel and step than the default (`engine.md` 3)."""
        return (current or 0) + 1

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        thread, ns = _place(config)
        if ns and self._buffers and (thread, ns) not in self._waiting and ns not in self._nested(thread):
            return None
        return super().get_tuple(config)

    def delete_thread(self, thread_id: str) -> None:
        super().delete_thread(thread_id)
        self._stored.pop(thread_id, None)

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Save; a root checkpoint also updates its `runs` row, and drops nested rows that are over."""
        thread, ns = _place(config)
        saved = (config, checkpoint, metadata, new_versions)
        with self._together():
            if ns:
                if metadata.get("source") == "input":  # it started in the task of its own node
                    self.steps.save_inside(self.conn, thread, checkpoint["id"], ns.rpartition(":")[2])
                self._waiting[thread, ns] = _Rows([saved], [])  # its earlier rows are obsolete
            else:
                if metadata.get("source") == "loop" and config["configurable"].get("checkpoint_id"):  # pyright: ignore[reportTypedDictNotRequiredAccess]
                    self._finish_superstep(thread)
                self._rows(thread, "").checkpoints.append(saved)
                self._move_run(thread, checkpoint, metadata)
        return {"configurable": {"thread_id": thread, "checkpoint_ns": ns, "checkpoint_id": checkpoint["id"]}}

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Save a task's writes, and with them its step, or (committed at once) the request it waits for."""
        thread, ns = _place(config)
        channels = {channel for channel, _ in writes}
        with self._together():
            self._rows(thread, ns).writes.append((config, writes, task_id, task_path))
            for channel, value in writes:
                if channel == "__interrupt__":
                    self._note_waiting(thread, value)
            # A resumed task also writes the answer it took; only further writes make it a step.
            if not channels <= _langgraph.BOOKKEEPING and not channels & {"__interrupt__", "__error__"}:
                self._forget(thread, task_id)
                if not _langgraph.turns_input_into_state(task_path):
                    checkpoint = str(config["configurable"]["checkpoint_id"])  # pyright: ignore[reportTypedDictNotRequiredAccess]
                    self.steps.save(self.conn, thread, ns, checkpoint, task_id, task_path)
        if "__interrupt__" in channels:
            self._commit()

    @property
    def _buffers(self) -> bool:
        return isinstance(self.conn, Buffered)

    @contextmanager
    def _together(self) -> Generator[None]:
        """Buffer what is saved inside until the driver's next commit; other connections commit it at the end."""
        if self._buffers:
            yield
            return
        with _transaction(self.conn):
            yield
            self.write()
        self.written()

    def _commit(self) -> None:
        if isinstance(self.conn, Buffered):
            self.conn.commit_waiting()

    def _rows(self, thread: str, ns: str) -> _Rows:
        return self._waiting.setdefault((thread, ns), _Rows([], []))

    def _nested(self, thread: str) -> set[str]:
        if thread not in self._stored:
            found = self.conn.execute(
                "select checkpoint_ns from checkpoints where thread_id = ?1 and checkpoint_ns > '' "
                "union select checkpoint_ns from writes where thread_id = ?1 and checkpoint_ns > ''",
                (thread,),
            )
            self._stored[thread] = {ns for (ns,) in found}
        return self._stored[thread]

    def _forget(self, thread: str, task: str) -> None:
        """Drop the rows of graphs inside a finished task: stale ones would show answered questions."""
        over = [key for key in self._waiting if key[0] == thread and f":{task}" in key[1]]
        for key in over:
            del self._waiting[key]
        for ns in [ns for ns in self._nested(thread) if f":{task}" in ns]:
            for table in ("checkpoints", "writes"):
                later(
                    self.conn, f"delete from {table} where thread_id = ? and checkpoint_ns = ?", (thread, ns)
                )
            self._nested(thread).discard(ns)

    def _finish_superstep(self, thread: str) -> None:
        """Finish the root's superstep: no nested graph stays open, and the new checkpoint has its tasks' writes."""
        self._waiting = {key: rows for key, rows in self._waiting.items() if key[0] != thread or not key[1]}
        self._rows(thread, "").writes.clear()
        if self._nested(thread):
            for table in ("checkpoints", "writes"):
                later(self.conn, f"delete from {table} where thread_id = ? and checkpoint_ns > ''", (thread,))
            self._stored[thread] = set()

    def _move_run(self, thread: str, checkpoint: Checkpoint, metadata: CheckpointMetadata) -> None:
        status, outcome = status_of(checkpoint["channel_values"], self._outcome)
        self.steps.root_step = metadata.get("step", 0)
        later(
            self.conn,
            "update runs set step = ?, updated = ?, status = ?, outcome = ? where run = ?",
            (metadata.get("step", 0), time.time(), status, outcome, thread),
        )

    def _note_waiting(self, thread: str, interrupts: Any) -> None:
        for item in interrupts:
            if isinstance(item, Interrupt):
                key: object = item.value  # pyright: ignore[reportUnknownMemberType,reportUnknownVariableType]
                later(
                    self.conn,
                    "update approvals set interrupt = ? where run = ? and key = ? and interrupt is not ?",
                    (item.id, thread, key, item.id),
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


_transaction = transaction  # `cursor` has a parameter named `transaction`


def _place(config: RunnableConfig) -> tuple[str, str]:
    """Thread and namespace."""
    where = config["configurable"]  # pyright: ignore[reportTypedDictNotRequiredAccess]
    return str(where["thread_id"]), str(where.get("checkpoint_ns", ""))


def status_of(values: dict[str, Any], key: str) -> tuple[str, str]:
    """A root checkpoint's (status, outcome): `open` while a node or a task is due, else how it ended."""
    if _langgraph.is_due(values):
        return "open", ""
    outcome = str(values.get(key) or "done")
    event = "finish" if outcome in ENDED_WELL else "cancel" if outcome == "cancelled" else "fail"
    return step(RunChart, "running", event), "done" if event == "finish" else outcome


def raise_id_clock(conn: sqlite3.Connection, thread: str) -> None:
    """Make new checkpoint ids sort after the run's existing ones, even if the clock stepped back (`engine.md` 4)."""
    (newest,) = conn.execute(
        "select max(checkpoint_id) from checkpoints where thread_id = ?", (thread,)
    ).fetchone()
    if newest:
        _langgraph.raise_id_clock(newest)
