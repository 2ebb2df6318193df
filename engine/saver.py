"""saver: LangGraph's checkpoints in the store, with `runs`, `approvals` and `steps` in the same transactions."""

import sqlite3
import time
from collections.abc import AsyncIterator, Generator, Sequence
from contextlib import contextmanager
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
)
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.types import Interrupt

from interlock.engine.steps import StepLog
from interlock.services.sqlite import transaction
from interlock.state.errors import ENDED_WELL

_SPECIAL = {"__interrupt__", "__error__", "__resume__", "__scheduled__", "__pregel_resuming"}


class Saver(SqliteSaver):
    """`SqliteSaver` on a connection of its own; async methods are answered inline (`engine.md` 1)."""

    def __init__(self, conn: sqlite3.Connection, steps: StepLog | None = None) -> None:
        super().__init__(conn, serde=JsonPlusSerializer(allowed_msgpack_modules=None))
        self.is_setup = True  # the store made the tables
        self.steps = steps or StepLog()

    @contextmanager
    def cursor(self, transaction: bool = True) -> Generator[sqlite3.Cursor]:
        """A cursor inside the open transaction, or in one of its own."""
        cursor = self.conn.cursor()
        try:
            if transaction:
                with _transaction(self.conn):
                    yield cursor
            else:
                yield cursor
        finally:
            cursor.close()

    def get_next_version(self, current: int | None, channel: None) -> int:  # noqa: ARG002 # pyright: ignore[reportIncompatibleMethodOverride]
        """Integers: 18 bytes less a channel and step than the default (`engine.md` 3)."""
        return (current or 0) + 1

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Save; a root checkpoint also moves its `runs` row, and drops the nested rows that are over."""
        with _transaction(self.conn):
            saved = super().put(config, checkpoint, metadata, new_versions)
            where = config["configurable"]  # pyright: ignore[reportTypedDictNotRequiredAccess]
            if not where.get("checkpoint_ns"):
                thread, parent = str(where["thread_id"]), where.get("checkpoint_id")
                if metadata.get("source") == "loop" and parent:
                    self._drop_nested(thread, parent)
                self._move_run(thread, checkpoint, metadata)
        return saved

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Save a task's writes; with them its step, or the request that it waits for."""
        where = config["configurable"]  # pyright: ignore[reportTypedDictNotRequiredAccess]
        with _transaction(self.conn):
            super().put_writes(config, writes, task_id, task_path)
            thread = str(where["thread_id"])
            for channel, value in writes:
                if channel == "__interrupt__":
                    self._note_waiting(thread, value)
            # A task that was resumed wrote the answer that it took, too: only what it did besides makes it a step.
            told = {channel for channel, _ in writes}
            if task_path.endswith("__start__"):
                return  # LangGraph's own node: the graph's input becomes its state
            if not told <= _SPECIAL and not told & {"__interrupt__", "__error__"}:
                namespace, checkpoint = str(where.get("checkpoint_ns", "")), str(where["checkpoint_id"])
                self.steps.save(self.conn, thread, namespace, checkpoint, task_id, task_path)

    def _drop_nested(self, thread: str, parent: str) -> None:
        """Rows of the namespaces that the finished superstep opened."""
        tasks = self.conn.execute(
            "select distinct task_id from writes where thread_id = ? and checkpoint_ns = '' and checkpoint_id = ?",
            (thread, parent),
        ).fetchall()
        for (task,) in tasks:
            for table in ("checkpoints", "writes"):
                self.conn.execute(
                    f"delete from {table} where thread_id = ? and checkpoint_ns <> '' "
                    "and instr(checkpoint_ns || '|', ':' || ? || '|') > 0",
                    (thread, task),
                )

    def _move_run(self, thread: str, checkpoint: Checkpoint, metadata: CheckpointMetadata) -> None:
        values = checkpoint["channel_values"]
        status, outcome = status_of(values)
        self.steps.root_step = metadata.get("step", 0)
        self.conn.execute(
            "update runs set step = ?, updated = ?, status = ?, outcome = ? where run = ?",
            (metadata.get("step", 0), time.time(), status, outcome, thread),
        )

    def _note_waiting(self, thread: str, interrupts: Any) -> None:
        for item in interrupts:
            if isinstance(item, Interrupt):
                key: object = item.value  # pyright: ignore[reportUnknownMemberType,reportUnknownVariableType]
                self.conn.execute(
                    "update approvals set interrupt = ? where run = ? and key = ? and interrupt is not ?",
                    (item.id, thread, key, item.id),
                )

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return self.get_tuple(config)

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        return self.put(config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        self.put_writes(config, writes, task_id, task_path)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        for item in list(self.list(config, filter=filter, before=before, limit=limit)):
            yield item

    async def adelete_thread(self, thread_id: str) -> None:
        self.delete_thread(thread_id)


_transaction = transaction  # `cursor` has a parameter of that name


def status_of(values: dict[str, Any]) -> tuple[str, str]:
    """A root checkpoint's (status, outcome): `open` while a node or a task is due, else how it ended."""
    due = values.get("__pregel_tasks") or any(k.startswith(("branch:to:", "__start__")) for k in values)
    if due:
        return "open", ""
    outcome = str(
        values.get("status")
        or values.get("turn_status")
        or values.get("edit_status")
        or values.get("compress_status")
        or ("stopped" if values.get("stop") else "done")
    )
    if outcome in ENDED_WELL:
        return "done", "done"
    return ("cancelled" if outcome == "cancelled" else "failed"), outcome


def raise_id_clock(conn: sqlite3.Connection, thread: str) -> None:
    """Make new checkpoint ids sort after every one of the run, also when the clock stepped back (`engine.md` 4)."""
    from uuid import UUID

    from langgraph.checkpoint.base import id as ids

    (newest,) = conn.execute(
        "select max(checkpoint_id) from checkpoints where thread_id = ?", (thread,)
    ).fetchone()
    if newest:
        bits = UUID(newest).int
        stamp = ((bits >> 80) << 12) | ((bits >> 64) & 0xFFF)
        ids._last_v6_timestamp = max(ids._last_v6_timestamp or 0, stamp)  # pyright: ignore[reportPrivateUsage]
