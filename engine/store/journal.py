"""journal: intents before calls and nodes' effects outside, results after them: nothing is done twice unknowingly."""

import hashlib
import json
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self, cast

from pydantic import JsonValue

from interlock.engine.store.blobs import open_blob_storage, record_files_named_by_row, store_changed_plans
from interlock.engine.store.chain import SqlChain
from interlock.engine.store.connection import Connection
from interlock.engine.store.saver import Notice, Serde, ignore_stored_value
from interlock.engine.store.seen_files import SqlSeenFiles
from interlock.engine.store.tables import TABLE, Plus
from interlock.graphs.langgraph_internals import always_storable_types
from interlock.graphs.stored_values import Names, StorableTypes, describe_unstorable_value
from interlock.services.hooks.hook_replies import HookReply
from interlock.services.hooks.hook_settings import Hook
from interlock.services.secrets.redaction import SHAPES, Redactor
from interlock.state.calls import CallKey, CallView, Planned, ToolResult
from interlock.state.clock import unix_time
from interlock.state.deps import Transcript
from interlock.state.errors import RunError
from interlock.state.journal import EffectRow, JournalRow, NodeUpdate
from interlock.state.run import HookEvent
from interlock.state.text import replace_surrogates


class _Row(NamedTuple):
    tool: str
    args_hash: str
    args: str | None
    state: str
    planned: str | None
    result: str | None
    result_file: str | None
    record: str | None
    epoch: int
    intent_at: float | None
    done_at: float | None


_Where = tuple[str, str, int, int]
_SELECT = f"select {', '.join(_Row._fields)} from journal where run = $1 and message = $2 and idx = $3 and attempt = $4"


def args_hash(call: CallView) -> str:
    """sha256 (hex) of the arguments in the order given."""
    return hashlib.sha256(json.dumps(call.args, ensure_ascii=True).encode()).hexdigest()


@dataclass
class SqlJournal:
    """Implements `Journal`. An intent is synced to disk before its effect, and the result is committed.

    Results without an intent had no effect, so they wait for the next commit.
    """

    conn: Connection
    transcript: Transcript
    outputs: Path
    run: str
    epoch: int
    redact: Redactor = SHAPES
    plans: Path | None = None
    """The run's folder of them."""
    _plans: dict[Path, int] = field(default_factory=dict[Path, int])
    _rows: dict[_Where, _Row] = field(default_factory=dict[_Where, _Row])
    """Rows that this drive, which alone changes any, has read or written; some aren't committed yet."""
    agent: str = ""
    """Path of the sub-agent that has it; empty: the run's own conversation."""

    def for_agent(self, agent: str) -> Self:
        return replace(self, agent=agent)

    @cached_property
    def seen(self) -> SqlSeenFiles:
        return SqlSeenFiles(self.conn, self.run, self.agent, self.redact)

    def find_row(self, key: CallKey, call: CallView) -> JournalRow | None:
        row = self._find_stored_row(key)
        if row is None:
            return None
        if row.tool != call.name or row.args_hash != args_hash(call):
            raise RunError(
                f"The journal has another call under {str(key)!r}: {row.tool!r}, expected {call.name!r} "
                f"with the same arguments. Nothing was run; check with: interlock show {self.run} --verify"
            )
        return JournalRow(
            key=key,
            state=cast(Any, row.state),
            tool=row.tool,
            args_hash=row.args_hash,
            planned=Planned.model_validate_json(row.planned) if row.planned else None,
            result=self._load_result(row),
            epoch=row.epoch,
        )

    def record_changed_arguments(self, key: CallKey, call: CallView) -> None:
        if self._find_stored_row(key) is None:
            self._write_row(key, self._new_row(call, "scheduled")._replace(args=json.dumps(call.args)))

    def read_call(self, key: CallKey) -> CallView:
        call = self.transcript.read_message(key.message).tool_calls[key.index]
        for attempt in range(key.attempt, 1, -1):
            row = self._find_stored_row(key.model_copy(update={"attempt": attempt}))
            if row is not None and row.args is not None:
                return CallView(id=call.id, name=row.tool, args=json.loads(row.args))
        return CallView(id=call.id, name=call.name, args=call.args)

    def record_intent(self, key: CallKey, call: CallView, planned: Planned | None = None) -> None:
        row = self._find_stored_row(key) or self._new_row(call, "intent")
        if row.state == "done":
            return
        text = self.redact.redact_planned_change(planned).model_dump_json() if planned else None
        row = row._replace(state="intent", planned=text, intent_at=unix_time(), epoch=self.epoch)
        with self.conn.transaction(synced=True):
            self._write_row(key, row)

    def record_result(self, key: CallKey, call: CallView, result: ToolResult) -> None:
        row = self._find_stored_row(key) or self._new_row(call, "done")
        text = self.redact.redact_result(result).model_dump_json()
        file = open_blob_storage(self.conn, self.outputs).store_body_if_long(text.encode())
        done = row._replace(
            state="done",
            result=None if file else text,
            result_file=file,
            done_at=unix_time(),
            epoch=self.epoch,
        )
        with self.conn.transaction() if row.intent_at else nullcontext():
            if self.plans and self.conn.blobs:
                store_changed_plans(self.conn, self.run, self.plans, self._plans)
            record_files_named_by_row(self.conn, self.run, text.encode(), file)
            self._write_row(key, done)
            self.seen.record(key.message, result.seen)

    def find_latest_attempt(self, message: str, index: int) -> CallKey:
        (attempt,) = self.conn.execute(
            "select max(attempt) from journal where run = $1 and message = $2 and idx = $3",
            (self.run, message, index),
            tables=("journal",),
        ).fetchone()
        return CallKey(message=message, index=index, attempt=attempt or 1)

    def list_ended_background_commands(self, since_epoch: int) -> tuple[list[CallView], int]:
        if since_epoch >= self.epoch:
            return [], self.epoch
        rows = self.conn.execute(
            "select message, idx, attempt, result from journal where run = $1 and epoch >= $2 and epoch < $3 "
            """and result like '%"pid"%' order by done_at""",
            (self.run, since_epoch, self.epoch),
            tables=("journal",),
        ).fetchall()
        keys = [
            CallKey(message=message, index=index, attempt=attempt)
            for message, index, attempt, result in rows
            if json.loads(result)["meta"].get("pid") is not None
        ]
        return [self.read_call(key) for key in keys], self.epoch

    def list_unreported_undos(self, head: str) -> list[str]:
        return [text for _, text in self._select_unreported_undos(head)]

    def mark_undos_reported(self, head: str, record: str) -> None:
        for seq, _ in self._select_unreported_undos(head):
            self.conn.update("undone", {"record": record}, {"run": self.run, "seq": seq})

    def _select_unreported_undos(self, head: str) -> list[tuple[int, str]]:
        """What was told right after `head` counts, too: a kill came before the checkpoint."""
        sql = "select seq, text, record from undone where run = $1 order by seq"
        if not (rows := self.conn.execute(sql, (self.run,), tables=("undone",)).fetchall()):
            return []
        after = {None, *SqlChain(self.conn).list_following_records(head)}
        return [(seq, text) for seq, text, record in rows if record in after]

    def record_server_reply(self, asked: str, answer: JsonValue) -> None:
        """Keep what an MCP server said, for replays. `asked`: JSON that names the server, and what of it."""
        reply = json.dumps(self.redact.redact_json(answer))
        row = {"run": self.run, "asked": asked, "reply": reply, "at": unix_time()}
        self.conn.insert("server_replies", row, "replace")

    def replace_result_text_with_record(self, key: CallKey, record: str) -> None:
        row = self._find_stored_row(key)
        if row is not None and row.result is not None and row.record is None:
            result = {**json.loads(row.result), "content": ""}
            text = json.dumps(result, ensure_ascii=False, separators=(",", ":"))
            self._write_row(key, row._replace(result=text, record=record))

    def _load_result(self, row: _Row) -> ToolResult | None:
        text = open_blob_storage(self.conn, self.outputs).read_text(
            row.result, row.result_file, "The result of a call"
        )
        if not text:
            return None
        result = ToolResult.model_validate_json(text)
        if row.record and not row.result_file:
            return result.model_copy(update={"content": self.transcript.read_message(row.record).text})
        return result

    def _find_stored_row(self, key: CallKey) -> _Row | None:
        where = self._row_key(key)
        if where in self._rows:
            return self._rows[where]
        if where not in self._keys_before_drive:
            return None
        with self.conn.write_lock:
            found = self.conn.execute_raw(_SELECT, where).fetchone()
        if found:
            self._rows[where] = _Row(*found)
        return self._rows.get(where)

    @cached_property
    def _keys_before_drive(self) -> set[_Where]:
        """The run's rows from before this drive, which alone adds any."""
        query = "select run, message, idx, attempt from journal where run = $1"
        with self.conn.write_lock:
            return {tuple(row) for row in self.conn.execute_raw(query, (self.run,))}

    def _row_key(self, key: CallKey) -> _Where:
        return (self.run, key.message, key.index, key.attempt)

    def _new_row(self, call: CallView, state: str) -> _Row:
        return _Row(call.name, args_hash(call), None, state, None, None, None, None, self.epoch, None, None)

    def _write_row(self, key: CallKey, row: _Row) -> None:
        where = self._row_key(key)
        place = dict(zip(TABLE["journal"].key, where, strict=True))
        self.conn.insert("journal", {**place, **row._asdict()}, "replace")
        self._rows[where] = row


@dataclass
class SqlEffects:
    """Implements `Effects`. Each intent is synced to disk before its effect, each result committed after it."""

    conn: Connection
    run: str
    epoch: int
    serde: Any
    """Stores results as it stores the state."""
    storable_classes: Names
    """Classes (module, name) of which results may be."""
    redact: Redactor = SHAPES
    on_stored_value: Notice = ignore_stored_value

    def find_row(self, task: str, key: str, node_path: str) -> EffectRow | None:  # noqa: ARG002 - a replay has other tasks
        found = self.conn.execute(
            "select state, attempt, type, value from effects where run = $1 and task = $2 and key = $3",
            (self.run, task, key),
            tables=("effects",),
        ).fetchone()
        return to_effect_row(self.serde, *found) if found else None

    def record_intent(self, task: str, key: str, node_path: str) -> None:
        before = self.find_row(task, key, node_path)
        attempt = before.attempt + 1 if before else 1
        where = {"run": self.run, "task": task, "key": key, "place": node_path}
        row = {"attempt": attempt, "state": "intent", "epoch": self.epoch, "intent_at": unix_time()}
        with self.conn.transaction(synced=True) as conn:
            conn.insert("effects", {**where, **row}, "replace")

    def record_failure(self, task: str, key: str) -> None:
        with self.conn.transaction() as conn:
            where = {"run": self.run, "task": task, "key": key}
            conn.update("effects", {"state": "failed", "epoch": self.epoch}, where)

    def record_node_update(self, task: str, update: NodeUpdate) -> None:
        try:
            kind, data = self.serde.dumps_typed(update.wrote)
        except (TypeError, ValueError):  # the saver refuses it, by the name of the state key
            return
        row = {**update._asdict(), "run": self.run, "task": task, "type": kind, "wrote": data}
        row["raised"] = self.redact(replace_surrogates(update.raised))
        self.conn.insert("node_updates", {**row, "at": unix_time()}, "replace")

    def find_recorded_node_update(self, task: str, update: NodeUpdate) -> NodeUpdate | None: ...

    def record_result(self, task: str, key: str, result: Any) -> None:
        if wrong := describe_unstorable_value(result, self.storable_classes, self.serde):
            query = "select place from effects where run = $1 and task = $2 and key = $3"
            (place,) = self.conn.execute(query, (self.run, task, key), tables=("effects",)).fetchone()
            raise RunError(
                f"Effect {key!r} of node {place!r} took place, but its result can't be stored: {wrong}. "
                f"Make its function return JSON-like values or messages, then: interlock resume {self.run}"
            )
        self.on_stored_value(f"The result of effect {key!r}", result)
        kind, data = self.serde.dumps_typed(result)
        row = {"state": "done", "type": kind, "value": data, "done_at": unix_time(), "epoch": self.epoch}
        with self.conn.transaction() as conn:
            conn.update("effects", row, {"run": self.run, "task": task, "key": key})


def make_effect_journal(conn: Connection, run: str, epoch: int, redact: Redactor) -> SqlEffects:
    """The journal of a drive, for results that any graph can store."""
    known = StorableTypes(always_storable_types())
    return SqlEffects(conn, run, epoch, Serde(known), known, redact)


def to_effect_row(serde: Any, state: Any, attempt: int, kind: str | None, data: bytes | None) -> EffectRow:
    """Return a row of `effects`. `kind` and `data`: its result, if it has one."""
    return EffectRow(state, attempt, serde.loads_typed((kind, data)) if kind else None)


WHOLE = ""
"""Stands for the whole firing in place of a hook's id; this row exists once every hook has answered."""


class Firing(NamedTuple):
    """One run of an event's hooks; keeps its identity after a kill."""

    event: HookEvent
    key: str
    subject: str


class HookRow(NamedTuple):
    """One hook of a firing."""

    hook: str
    attempt: int
    name: str
    source: str
    command: str
    idempotent: bool
    state: str
    """intent | redo | done | skipped"""
    subject: str
    epoch: int
    """Number of the drive that last wrote it."""
    reply: HookReply | None


_COLUMNS = "hook, attempt, name, source, command, idempotent, state, subject, epoch"


@dataclass
class HookLog:
    """The table `hook_calls`, for a run's driver. Intents are synced to disk."""

    conn: Connection
    outputs: Path
    run: str
    epoch: int

    def list_firing_rows(self, event: str, key: str) -> list[HookRow]:
        """The hooks of a firing in execution order; the firing's own row comes first if present."""
        found = self.conn.execute(
            f"select reply, reply_file, {_COLUMNS} from hook_calls "
            "where run = $1 and event = $2 and key = $3 order by place",
            (self.run, event, key),
            tables=("hook_calls",),
        )
        return [HookRow._make((*row[2:], self._load_reply(*row[:2]))) for row in found]

    def record_intent(self, firing: Firing, hooks: Sequence[tuple[int, Hook, int]]) -> None:
        """Commit (power-safe) that hooks, each with its place and attempt, are about to run."""
        with self.conn.transaction(synced=True):
            for place, hook, attempt in hooks:
                about = {"name": hook.display_name, "source": hook.source, "command": hook.command}
                state = {"place": place, "attempt": attempt, "idempotent": hook.idempotent, "state": "intent"}
                self._write_row("replace", firing, hook=hook.id, **about, **state)

    def record_reply(self, firing: Firing, hook: str, reply: HookReply, *, last: bool) -> None:
        """Commit a hook's reply; `last` also closes the firing."""
        text = reply.model_dump_json()
        file = open_blob_storage(self.conn, self.outputs).store_body_if_long(text.encode())
        row = {"state": "done", "reply": None if file else text, "reply_file": file}
        row |= {"done_at": unix_time(), "epoch": self.epoch}
        with self.conn.transaction() as conn:
            record_files_named_by_row(conn, self.run, b"", file)
            conn.update("hook_calls", row, {**self._firing_key(firing), "hook": hook})
            if last:
                self.mark_firing_done(firing)

    def record_decision(self, firing: Firing, hooks: Sequence[str], state: str) -> None:
        """Record a person's decision about hooks cut off by a kill: `redo` or `skipped`."""
        with self.conn.transaction() as conn:
            for hook in hooks:
                row = {"state": state, "attempt": Plus(1), "epoch": self.epoch}
                conn.update("hook_calls", row, {**self._firing_key(firing), "hook": hook})

    def delete_firing_rows(self, firing: Firing) -> None:
        """Delete the firing's rows, so that it starts over."""
        with self.conn.transaction() as conn:
            conn.delete("hook_calls", self._firing_key(firing))

    def mark_firing_done(self, firing: Firing) -> None:
        """Mark the firing as over."""
        about = {"name": "", "source": "", "command": "", "idempotent": True}
        state = {"place": -1, "attempt": 1, "state": "done", "done_at": unix_time()}
        with self.conn.transaction():
            self._write_row("keep", firing, hook=WHOLE, **about, **state)

    def _firing_key(self, firing: Firing) -> dict[str, object]:
        return {"run": self.run, "event": firing.event, "key": firing.key}

    def _write_row(self, on_conflict: Literal["replace", "keep"], firing: Firing, **columns: object) -> None:
        row = {"run": self.run, **firing._asdict(), "epoch": self.epoch, "intent_at": unix_time(), **columns}
        self.conn.insert("hook_calls", row, on_conflict)

    def _load_reply(self, text: str | None, file: str | None) -> HookReply | None:
        text = open_blob_storage(self.conn, self.outputs).read_text(text, file, "A hook's reply")
        return HookReply.model_validate_json(text) if text else None
