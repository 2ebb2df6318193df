"""journal: what each call was about to do, and what came of it (`engine.md` 12, 13)."""

import hashlib
import json
import sqlite3
import time
from pathlib import Path
from typing import Any

from interlock.services.outputs import store_file
from interlock.services.redaction import SHAPES, Redactor
from interlock.services.sqlite import transaction
from interlock.services.transcript import INLINE_BYTES
from interlock.state.calls import CallKey, CallView, Planned, ToolResult
from interlock.state.deps import Transcript
from interlock.state.errors import RunError
from interlock.state.journal import JournalRow


def args_hash(call: CallView) -> str:
    """sha256 of the arguments in the order given, hex."""
    return hashlib.sha256(json.dumps(call.args, ensure_ascii=True).encode()).hexdigest()


class SqlJournal:
    """Implements `Journal`. Intents are committed on a connection that syncs (`FULL`): a power cut loses none."""

    def __init__(
        self,
        normal: sqlite3.Connection,
        full: sqlite3.Connection,
        transcript: Transcript,
        outputs: Path,
        run: str,
        epoch: int,
        redact: Redactor = SHAPES,
    ) -> None:
        self._normal, self._full = normal, full
        self._transcript = transcript
        self._outputs = outputs
        self._run = run
        self._epoch = epoch
        self._redact = redact

    def find(self, key: CallKey, call: CallView) -> JournalRow | None:
        row = self._row(key)
        if row is None:
            return None
        tool, hashed, _, state, planned, _, _, epoch, _ = row
        if tool != call.name or hashed != args_hash(call):
            raise RunError(
                f"The journal has another call under {str(key)!r}: {tool!r}, expected {call.name!r} "
                "with the same arguments. Nothing was run; check with: interlock show RUN --verify"
            )
        return JournalRow(
            key=key,
            state=state,
            tool=tool,
            args_hash=hashed,
            planned=Planned.model_validate_json(planned) if planned else None,
            result=self._result(row),
            epoch=epoch,
        )

    def amend(self, key: CallKey, call: CallView) -> None:
        with transaction(self._normal) as conn:
            self._insert(conn, key, call, "scheduled", args=json.dumps(call.args))

    def call(self, key: CallKey) -> CallView:
        call = self._transcript.message(key.message).tool_calls[key.index]
        for attempt in range(key.attempt, 1, -1):
            row = self._row(key.model_copy(update={"attempt": attempt}))
            if row is not None and row[2] is not None:
                return CallView(id=call.id, name=call.name, args=json.loads(row[2]))
        return CallView(id=call.id, name=call.name, args=call.args)

    def intend(self, key: CallKey, call: CallView, planned: Planned | None = None) -> None:
        text = self._redact.planned(planned).model_dump_json() if planned else None
        with transaction(self._full) as conn:
            self._insert(conn, key, call, "intent")
            conn.execute(
                "update journal set state = 'intent', planned = ?, intent_at = ?, epoch = ? "
                "where run = ? and message = ? and idx = ? and attempt = ? and state <> 'done'",
                (text, time.time(), self._epoch, *self._where(key)),
            )

    def finish(self, key: CallKey, call: CallView, result: ToolResult) -> None:
        text, file = self._redact.result(result).model_dump_json(), None
        if len(body := text.encode()) > INLINE_BYTES:
            file = hashlib.sha256(body).hexdigest() + ".json"
            store_file(self._outputs, file, body)
        with transaction(self._normal) as conn:
            self._insert(conn, key, call, "done")
            conn.execute(
                "update journal set state = 'done', result = ?, result_file = ?, done_at = ?, epoch = ? "
                "where run = ? and message = ? and idx = ? and attempt = ?",
                (None if file else text, file, time.time(), self._epoch, *self._where(key)),
            )

    def ended_background(self, since: int) -> tuple[list[CallView], int]:
        rows = self._normal.execute(
            "select message, idx, attempt from journal where run = ? and epoch >= ? and epoch < ? "
            "and json_extract(result, '$.meta.pid') is not null order by done_at",
            (self._run, since, self._epoch),
        ).fetchall()
        keys = [CallKey(message=message, index=index, attempt=attempt) for message, index, attempt in rows]
        return [self.call(key) for key in keys], self._epoch

    def settle(self, key: CallKey, record: str) -> None:
        with transaction(self._normal) as conn:
            conn.execute(
                "update journal set record = ?, result = json_set(result, '$.content', '') "
                "where run = ? and message = ? and idx = ? and attempt = ? and result is not null and record is null",
                (record, *self._where(key)),
            )

    def _result(self, row: tuple[Any, ...]) -> ToolResult | None:
        _, _, _, _, _, text, file, _, record = row
        if file:
            text = (self._outputs / file).read_text(encoding="utf-8")
        if not text:
            return None
        result = ToolResult.model_validate_json(text)
        if record and not file:
            return result.model_copy(update={"content": self._transcript.message(record).text})
        return result

    def _row(self, key: CallKey) -> tuple[Any, ...] | None:
        return self._normal.execute(
            "select tool, args_hash, args, state, planned, result, result_file, epoch, record from journal "
            "where run = ? and message = ? and idx = ? and attempt = ?",
            self._where(key),
        ).fetchone()

    def _where(self, key: CallKey) -> tuple[str, str, int, int]:
        return (self._run, key.message, key.index, key.attempt)

    def _insert(
        self, conn: sqlite3.Connection, key: CallKey, call: CallView, state: str, args: str | None = None
    ) -> None:
        conn.execute(
            "insert or ignore into journal (run, message, idx, attempt, tool, args_hash, args, state, epoch) "
            "values (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (*self._where(key), call.name, args_hash(call), args, state, self._epoch),
        )
