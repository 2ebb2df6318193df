"""journal: the outcome of each tool and model call (`engine.md` 12, 13, 20), and file snapshots around tool calls."""

import asyncio
import hashlib
import json
import sqlite3
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from interlock.engine.read import with_subtasks
from interlock.engine.store import insertion, read_options
from interlock.engine.store.steps import StepLog
from interlock.services.files.filesystem import store_file
from interlock.services.models.request import Request
from interlock.services.secrets.redaction import SHAPES, Redactor
from interlock.services.sqlite import Buffered, later, transaction
from interlock.services.transcript import INLINE_BYTES, ChainTranscript
from interlock.state.calls import CallKey, CallView, Planned, ToolResult
from interlock.state.deps import Transcript, to_its_end
from interlock.state.errors import RunError
from interlock.state.events import Emit, ErrorEvent
from interlock.state.journal import JournalRow
from interlock.state.messages import ModelCall, Reply, Usage

if TYPE_CHECKING:
    from interlock.services.snapshots.snapshots import WorkspaceSnapshots


class _Row(NamedTuple):
    tool: str
    args_hash: str
    args: str | None
    state: str
    planned: str | None
    result: str | None
    file: str | None
    record: str | None
    epoch: int
    intent_at: float | None
    done_at: float | None


_Where = tuple[str, str, int, int]
_COLUMNS = "tool, args_hash, args, state, planned, result, result_file, record, epoch, intent_at, done_at"
_SELECT = f"select {_COLUMNS} from journal where run = ? and message = ? and idx = ? and attempt = ?"
_REPLACE = (
    f"insert or replace into journal (run, message, idx, attempt, {_COLUMNS}) "
    f"values ({', '.join('?' * (4 + len(_Row._fields)))})"
)


def args_hash(call: CallView) -> str:
    """sha256 (hex) of the arguments in the order given."""
    return hashlib.sha256(json.dumps(call.args, ensure_ascii=True).encode()).hexdigest()


@dataclass
class SqlJournal:
    """Implements `Journal`. An intent is synced to disk before its effect, and the result is committed.

    Results without an intent had no effect, so they wait for the next commit.
    """

    conn: sqlite3.Connection
    transcript: Transcript
    outputs: Path
    run: str
    epoch: int
    redact: Redactor = SHAPES
    _written: dict[_Where, _Row] = field(default_factory=dict[_Where, _Row])
    """Rows written by this drive, some of them not yet committed."""

    def find(self, key: CallKey, call: CallView) -> JournalRow | None:
        row = self._row(key)
        if row is None:
            return None
        if row.tool != call.name or row.args_hash != args_hash(call):
            raise RunError(
                f"The journal has another call under {str(key)!r}: {row.tool!r}, expected {call.name!r} "
                "with the same arguments. Nothing was run; check with: interlock show RUN --verify"
            )
        return JournalRow(
            key=key,
            state=cast(Any, row.state),
            tool=row.tool,
            args_hash=row.args_hash,
            planned=Planned.model_validate_json(row.planned) if row.planned else None,
            result=self._result(row),
            epoch=row.epoch,
        )

    def amend(self, key: CallKey, call: CallView) -> None:
        if self._row(key) is None:
            self._put(key, self._new(call, "scheduled")._replace(args=json.dumps(call.args)))

    def call(self, key: CallKey) -> CallView:
        call = self.transcript.message(key.message).tool_calls[key.index]
        for attempt in range(key.attempt, 1, -1):
            row = self._row(key.model_copy(update={"attempt": attempt}))
            if row is not None and row.args is not None:
                return CallView(id=call.id, name=row.tool, args=json.loads(row.args))
        return CallView(id=call.id, name=call.name, args=call.args)

    def intend(self, key: CallKey, call: CallView, planned: Planned | None = None) -> None:
        row = self._row(key) or self._new(call, "intent")
        if row.state == "done":
            return
        text = self.redact.planned(planned).model_dump_json() if planned else None
        row = row._replace(state="intent", planned=text, intent_at=time.time(), epoch=self.epoch)
        with transaction(self.conn, synced=True):
            later(self.conn, _REPLACE, (*self._where(key), *row))
        self._written[self._where(key)] = row

    def finish(self, key: CallKey, call: CallView, result: ToolResult) -> None:
        row = self._row(key) or self._new(call, "done")
        text, file = self.redact.result(result).model_dump_json(), None
        if len(body := text.encode()) > INLINE_BYTES:
            file = hashlib.sha256(body).hexdigest() + ".json"
            store_file(self.outputs, file, body)
        done = row._replace(
            state="done", result=None if file else text, file=file, done_at=time.time(), epoch=self.epoch
        )
        with transaction(self.conn) if row.intent_at else nullcontext():
            later(self.conn, _REPLACE, (*self._where(key), *done))
        self._written[self._where(key)] = done

    def ended_background(self, since: int) -> tuple[list[CallView], int]:
        if since >= self.epoch:
            return [], self.epoch
        rows = self.conn.execute(
            "select message, idx, attempt from journal where run = ? and epoch >= ? and epoch < ? "
            "and json_extract(result, '$.meta.pid') is not null order by done_at",
            (self.run, since, self.epoch),
        ).fetchall()
        keys = [CallKey(message=message, index=index, attempt=attempt) for message, index, attempt in rows]
        return [self.call(key) for key in keys], self.epoch

    def settle(self, key: CallKey, record: str) -> None:
        row = self._row(key)
        if row is not None and row.result is not None and row.record is None:
            result = {**json.loads(row.result), "content": ""}
            text = json.dumps(result, ensure_ascii=False, separators=(",", ":"))
            self._put(key, row._replace(result=text, record=record))

    def _result(self, row: _Row) -> ToolResult | None:
        text = row.result
        if row.file:
            text = (self.outputs / row.file).read_text(encoding="utf-8")
        if not text:
            return None
        result = ToolResult.model_validate_json(text)
        if row.record and not row.file:
            return result.model_copy(update={"content": self.transcript.message(row.record).text})
        return result

    def _row(self, key: CallKey) -> _Row | None:
        where = self._where(key)
        if where in self._written:
            return self._written[where]
        read = self.conn.stored if isinstance(self.conn, Buffered) else self.conn.execute
        found = read(_SELECT, where).fetchone()
        return _Row(*found) if found else None

    def _where(self, key: CallKey) -> _Where:
        return (self.run, key.message, key.index, key.attempt)

    def _new(self, call: CallView, state: str) -> _Row:
        return _Row(call.name, args_hash(call), None, state, None, None, None, None, self.epoch, None, None)

    def _put(self, key: CallKey, row: _Row) -> None:
        where = self._where(key)
        later(self.conn, _REPLACE, (*where, *row))
        self._written[where] = row


@dataclass
class SqlSnapshots:
    """Implements `Snapshots`. On a failure, warns once and takes no more snapshots in this drive; the run goes on."""

    conn: sqlite3.Connection
    run: str
    steps: StepLog
    emit: Emit
    make: "Callable[[], WorkspaceSnapshots] | None"
    """None: disabled in settings."""
    _made: "WorkspaceSnapshots | None" = None
    _newest: tuple[str, str] = ("", "")
    """Message, and the commit after its latest call: nothing else can have changed files since."""

    async def before(self, key: CallKey) -> None:
        place = self._place(key)
        if place in self._calls:  # repeated after a kill: the first snapshot counts
            return
        round_, commit = self._newest
        if round_ != key.message:
            commit = await self._taken()
        if commit and self._made:
            where = dict(zip(("run", "message", "idx", "attempt"), place, strict=True))
            order = {"seq": len(self._calls), "root_step": self.steps.root_step, "at": time.time()}
            later(
                self.conn,
                *insertion("snapshots", {**where, **order, "repository": self._made.name, "before": commit}),
            )
            self._calls[place] = False

    async def after(self, key: CallKey, changed: str = "") -> None:
        place = self._place(key)
        if self._calls.get(place) is False and (commit := await self._taken(changed)):
            self._calls[place], self._newest = True, (key.message, commit)
            set_ = "update snapshots set after = ? where run = ? and message = ? and idx = ? and attempt = ?"
            later(self.conn, set_, (commit, *place))

    @cached_property
    def _calls(self) -> dict[tuple[str, str, int, int], bool]:
        """Whether the state after each call is recorded."""
        rows = self.conn.execute(
            "select message, idx, attempt, after from snapshots where run = ?", (self.run,)
        )
        return {(self.run, *row[:3]): row[3] is not None for row in rows}

    def close(self) -> None:
        if self._made is None:
            return
        try:
            self._made.close()
        except (RunError, OSError) as error:  # snapshots taken so far stay
            self.emit(ErrorEvent(severity="warning", message=f"Snapshots couldn't be tidied up: {error}"))

    async def _taken(self, changed: str = "") -> str:
        """The commit; empty: none was taken."""
        if self.make is None:
            return ""
        try:
            self._made = self._made or self.make()
            return await to_its_end(asyncio.to_thread(self._made.take, f"refs/runs/{self.run}", changed))
        except (RunError, OSError) as error:
            self.make = None
            why = f"{str(error).rstrip('.')}. What this run changes from here on can't be taken back by rewind or undo."
            self.emit(ErrorEvent(severity="warning", message=f"No snapshots of files: {why}"))
            return ""

    def _place(self, key: CallKey) -> tuple[str, str, int, int]:
        return (self.run, key.message, key.index, key.attempt)


@dataclass
class SqlModelLog:
    """Implements the models service's `ModelLog`: role, ordinal, request hash, reply of each call (`engine.md` 20)."""

    conn: sqlite3.Connection
    transcript: ChainTranscript
    run: str
    _made: dict[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])
    """Number of calls by agent and role; only this drive adds to them."""

    def recorded(self, task: str) -> Reply | None:
        row = self.conn.execute(
            "select record, model, finish_reason, problem, input_tokens, output_tokens, cached_tokens, "
            "thought_tokens, duration_ms from model_calls where run = ? and task = ?",
            (self.run, task),
        ).fetchone()
        if row is None:
            return None
        record, model, finish, problem, spent, out, cached, thoughts, ms = row
        return Reply(
            record=record,
            message=self.transcript.message(record),
            model=model,
            finish_reason=finish,
            problem=problem,
            usage=Usage(input=spent, output=out, cached=cached, thoughts=thoughts),
            duration_ms=ms,
            replayed=True,
        )

    def ordinal(self, agent: str, role: str) -> int:
        if (agent, role) not in self._made:
            (made,) = self.conn.execute(
                "select count(*) from model_calls where run = ? and agent = ? and role = ?",
                (self.run, agent, role),
            ).fetchone()
            self._made[agent, role] = self._before.get((agent, role), 0) + made
        return self._made[agent, role]

    @cached_property
    def _before(self) -> dict[tuple[str, str], int]:
        return calls_before(self.conn, self.run)

    def record(self, call: ModelCall, request: Request, reply: Reply, request_hash: str) -> Reply:
        with transaction(self.conn) as conn:
            record = self.transcript.append(call.head, [reply.message])
            row = {
                "run": self.run,
                "agent": request.agent,
                "role": call.role,
                "ordinal": request.ordinal,
                "task": call.task,
                "request_hash": request_hash,
                "record": record,
                "at": time.time(),
                **reply.model_dump(include={"model", "finish_reason", "problem", "duration_ms"}),
                "input_tokens": reply.usage.input,
                "output_tokens": reply.usage.output,
                "cached_tokens": reply.usage.cached,
                "thought_tokens": reply.usage.thoughts,
            }
            conn.execute(*insertion("model_calls", row))
        if (request.agent, call.role) in self._made:
            self._made[request.agent, call.role] += 1
        return reply.model_copy(update={"record": record, "message": self.transcript.message(record)})


def calls_made(conn: sqlite3.Connection, run: str) -> list[tuple[str, str, int]]:
    """Agent, role and number of their replies, in a run whose plan another carries out, as `calls_before` reads them.

    Ordinals continue from there, so that one script covers both; that run keeps them: the plan's may be deleted.
    """
    sql = "select agent, role, count(*) from model_calls where run = ? group by agent, role"
    return conn.execute(sql, (run,)).fetchall()


def calls_before(conn: sqlite3.Connection, run: str) -> dict[tuple[str, str], int]:
    """Agent and role → ordinal of their first reply in this run, if it isn't 0."""
    kept: list[tuple[str, str, int]] = read_options(conn, run).get("calls_before", [])
    return {(agent, role): number for agent, role, number in kept}


def usage_of(conn: sqlite3.Connection, run: str, record: str) -> Usage:
    """Tokens of the request whose reply is `record`."""
    row = conn.execute(
        "select input_tokens, output_tokens, cached_tokens, thought_tokens from model_calls "
        "where run = ? and record = ?",
        (run, record),
    ).fetchone()
    return Usage(input=row[0], output=row[1], cached=row[2], thoughts=row[3]) if row else Usage()


def usage_stats(conn: sqlite3.Connection, run: str) -> dict[str, Any]:
    """Tokens and calls of a run and its subtasks, in total and by model, as `stats` shows them."""
    runs = with_subtasks(conn, run)
    of_task = f"run in ({', '.join('?' * len(runs))})"
    rows = conn.execute(
        "select model, count(*), sum(input_tokens), sum(output_tokens), sum(cached_tokens), sum(duration_ms) "
        f"from model_calls where {of_task} group by model order by model",
        runs,
    ).fetchall()
    models = {
        model: {"requests": n, "input_tokens": i, "output_tokens": o, "cached": c, "duration_ms": ms}
        for model, n, i, o, c, ms in rows
    }
    (calls,) = conn.execute(
        f"select count(*) from journal where {of_task} and state = 'done'", runs
    ).fetchone()
    total = {
        key: sum(model[key] for model in models.values())
        for key in ("input_tokens", "output_tokens", "cached", "duration_ms")
    }
    spent = total["input_tokens"] + total["output_tokens"]
    return {"total_tokens": spent, **total, "tool_calls": calls, "models": models}
