"""journal: the outcome of each tool call (`engine.md` 12, 13): an intent before an effect, the result after it."""

import hashlib
import json
import time
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, cast

from pydantic import JsonValue

from interlock.engine.store import put
from interlock.engine.store.blobs import blobs_of, keep_plans
from interlock.engine.store.chain import SqlChain
from interlock.engine.store.connection import Connection
from interlock.engine.store.tables import TABLE
from interlock.services.secrets.redaction import SHAPES, Redactor
from interlock.state.calls import CallKey, CallView, Planned, ToolResult
from interlock.state.deps import Transcript
from interlock.state.errors import RunError, StoreError
from interlock.state.journal import JournalRow


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
_SELECT = (
    f"select {', '.join(_Row._fields)} from journal where run = ? and message = ? and idx = ? and attempt = ?"
)


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
        with self.conn.transaction(synced=True):
            self._put(key, row)

    def finish(self, key: CallKey, call: CallView, result: ToolResult) -> None:
        row = self._row(key) or self._new(call, "done")
        text = self.redact.result(result).model_dump_json()
        file = blobs_of(self.conn, self.outputs).keep(text.encode())
        done = row._replace(
            state="done",
            result=None if file else text,
            result_file=file,
            done_at=time.time(),
            epoch=self.epoch,
        )
        with self.conn.transaction() if row.intent_at else nullcontext():
            if self.plans:
                keep_plans(self.conn, self.run, self.plans, self._plans)
            self._put(key, done)

    def latest(self, message: str, index: int) -> CallKey:
        (attempt,) = self.conn.execute(
            "select max(attempt) from journal where run = ? and message = ? and idx = ?",
            (self.run, message, index),
        ).fetchone()
        return CallKey(message=message, index=index, attempt=attempt or 1)

    def ended_background(self, since: int) -> tuple[list[CallView], int]:
        if since >= self.epoch:
            return [], self.epoch
        rows = self.conn.execute(
            "select message, idx, attempt, result from journal where run = ? and epoch >= ? and epoch < ? "
            """and result like '%"pid"%' order by done_at""",
            (self.run, since, self.epoch),
        ).fetchall()
        keys = [
            CallKey(message=message, index=index, attempt=attempt)
            for message, index, attempt, result in rows
            if json.loads(result)["meta"].get("pid") is not None
        ]
        return [self.call(key) for key in keys], self.epoch

    def undone(self, head: str) -> list[str]:
        return [text for _, text in self._untold(head)]

    def tell_undone(self, head: str, record: str) -> None:
        for seq, _ in self._untold(head):
            values = (record, self.run, seq)
            self.conn.later("undone", "update undone set record = ? where run = ? and seq = ?", values)

    def _untold(self, head: str) -> list[tuple[int, str]]:
        """What was told right after `head` counts, too: a kill came before the checkpoint."""
        sql = "select seq, text, record from undone where run = ? order by seq"
        if not (rows := self.conn.execute(sql, (self.run,)).fetchall()):
            return []
        after = {None, *SqlChain(self.conn).after(head)}
        return [(seq, text) for seq, text, record in rows if record in after]

    def keep_reply(self, asked: str, answer: JsonValue) -> None:
        """Keep what an MCP server said, for replays. `asked`: JSON that names the server, and what of it."""
        reply = json.dumps(self.redact.json(answer))
        row = {"run": self.run, "asked": asked, "reply": reply, "at": time.time()}
        put(self.conn, "server_replies", row, "replace", later=True)

    def settle(self, key: CallKey, record: str) -> None:
        row = self._row(key)
        if row is not None and row.result is not None and row.record is None:
            result = {**json.loads(row.result), "content": ""}
            text = json.dumps(result, ensure_ascii=False, separators=(",", ":"))
            self._put(key, row._replace(result=text, record=record))

    def _result(self, row: _Row) -> ToolResult | None:
        text = row.result
        if row.result_file:
            body = blobs_of(self.conn, self.outputs).load(row.result_file)
            if body is None:
                raise StoreError(
                    f"The result of a call is missing: {row.result_file!r} in {str(self.outputs)!r}."
                )
            text = body.decode()
        if not text:
            return None
        result = ToolResult.model_validate_json(text)
        if row.record and not row.result_file:
            return result.model_copy(update={"content": self.transcript.message(row.record).text})
        return result

    def _row(self, key: CallKey) -> _Row | None:
        where = self._where(key)
        if where in self._written:
            return self._written[where]
        found = self.conn.stored(_SELECT, where).fetchone()
        return _Row(*found) if found else None

    def _where(self, key: CallKey) -> _Where:
        return (self.run, key.message, key.index, key.attempt)

    def _new(self, call: CallView, state: str) -> _Row:
        return _Row(call.name, args_hash(call), None, state, None, None, None, None, self.epoch, None, None)

    def _put(self, key: CallKey, row: _Row) -> None:
        where = self._where(key)
        place = dict(zip(TABLE["journal"].key, where, strict=True))
        put(self.conn, "journal", {**place, **row._asdict()}, "replace", later=True)
        self._written[where] = row
