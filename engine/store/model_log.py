"""model_log: every model call leaves a record: role, ordinal, request hash, reply (`engine.md` 20)."""

import sqlite3
import time
from functools import cached_property
from typing import Any

from interlock.services.models.request import Request
from interlock.services.sqlite import transaction
from interlock.services.transcript import ChainTranscript
from interlock.state.models import ModelCall, Reply, Usage

_COLUMNS = (
    "run, agent, role, ordinal, task, request_hash, record, model, finish_reason, problem, input_tokens, "
    "output_tokens, cached_tokens, thought_tokens, duration_ms, at"
)
_INSERT = f"insert into model_calls ({_COLUMNS}) values ({', '.join('?' * 16)})"


class SqlModelLog:
    """Implements the models service's `ModelLog`."""

    def __init__(self, conn: sqlite3.Connection, transcript: ChainTranscript, run: str) -> None:
        self._conn = conn
        self._transcript = transcript
        self._run = run

    def recorded(self, task: str) -> Reply | None:
        row = self._conn.execute(
            "select record, model, finish_reason, problem, input_tokens, output_tokens, cached_tokens, "
            "thought_tokens, duration_ms from model_calls where run = ? and task = ?",
            (self._run, task),
        ).fetchone()
        if row is None:
            return None
        record, model, finish, problem, spent, out, cached, thoughts, ms = row
        return Reply(
            record=record,
            message=self._transcript.message(record),
            model=model,
            finish_reason=finish,
            problem=problem,
            usage=Usage(input=spent, output=out, cached=cached, thoughts=thoughts),
            duration_ms=ms,
            replayed=True,
        )

    def ordinal(self, agent: str, role: str) -> int:
        (count,) = self._conn.execute(
            "select count(*) from model_calls where run in (?, ?) and agent = ? and role = ?",
            (self._run, self._plan, agent, role),
        ).fetchone()
        return count

    @cached_property
    def _plan(self) -> str:
        """The run that made the plan which this one carries out: one piece of work, so a script goes on."""
        found = self._conn.execute(
            "select p.run from runs r join runs p on p.run = r.parent "
            "where r.run = ? and p.workflow = 'plan' and r.workflow = 'main'",
            (self._run,),
        ).fetchone()
        return found[0] if found else self._run

    def record(self, call: ModelCall, request: Request, reply: Reply, request_hash: str) -> Reply:
        with transaction(self._conn) as conn:
            record = self._transcript.append(call.head, [reply.message])
            values = (
                *(self._run, request.agent, call.role, request.ordinal, call.task, request_hash, record),
                *(reply.model, reply.finish_reason, reply.problem, *_tokens(reply.usage)),
                *(reply.duration_ms, time.time()),
            )
            conn.execute(_INSERT, values)
        return reply.model_copy(update={"record": record, "message": self._transcript.message(record)})


def _tokens(usage: Usage) -> tuple[int, int, int, int]:
    return usage.input, usage.output, usage.cached, usage.thoughts


def usage_of(conn: sqlite3.Connection, run: str, record: str) -> Usage:
    """Tokens of the request whose reply is `record`."""
    row = conn.execute(
        "select input_tokens, output_tokens, cached_tokens, thought_tokens from model_calls "
        "where run = ? and record = ?",
        (run, record),
    ).fetchone()
    return Usage(input=row[0], output=row[1], cached=row[2], thoughts=row[3]) if row else Usage()


def usage_stats(conn: sqlite3.Connection, run: str) -> dict[str, Any]:
    """Tokens and calls of a run, in all and by model, as `stats` shows them."""
    rows = conn.execute(
        "select model, count(*), sum(input_tokens), sum(output_tokens), sum(cached_tokens), sum(duration_ms) "
        "from model_calls where run = ? group by model order by model",
        (run,),
    ).fetchall()
    models = {
        model: {"requests": n, "input_tokens": i, "output_tokens": o, "cached": c, "duration_ms": ms}
        for model, n, i, o, c, ms in rows
    }
    (calls,) = conn.execute(
        "select count(*) from journal where run = ? and state = 'done'", (run,)
    ).fetchone()
    total = {
        key: sum(model[key] for model in models.values())
        for key in ("input_tokens", "output_tokens", "cached", "duration_ms")
    }
    spent = total["input_tokens"] + total["output_tokens"]
    return {"total_tokens": spent, **total, "tool_calls": calls, "models": models}
