"""model_log: every model call leaves a record: role, ordinal, request hash, reply (`engine.md` 20)."""

import sqlite3
import time
from functools import cached_property
from typing import Any

from interlock.services.sqlite import transaction
from interlock.services.transcript import ChainTranscript
from interlock.state.messages import Message
from interlock.state.models import ModelCall, Reply, Usage

_COLUMNS = (
    "run, agent, role, ordinal, task, request_hash, record, model, finish_reason, problem, input_tokens, "
    "output_tokens, cached_tokens, thought_tokens, duration_ms, at"
)
_INSERT = (
    f"insert into model_calls ({_COLUMNS}) values ({', '.join(':' + c.strip() for c in _COLUMNS.split(','))})"
)


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

    def record(
        self,
        call: ModelCall,
        agent: str,
        ordinal: int,
        message: Message,
        *,
        model: str,
        finish_reason: str | None,
        problem: str | None,
        usage: Usage,
        duration_ms: int,
        request_hash: str,
    ) -> Reply:
        values = {
            "run": self._run,
            "agent": agent,
            "role": call.role,
            "ordinal": ordinal,
            "task": call.task,
            "request_hash": request_hash,
            "model": model,
            "finish_reason": finish_reason,
            "problem": problem,
            **_tokens(usage),
            "duration_ms": duration_ms,
            "at": time.time(),
        }
        with transaction(self._conn) as conn:
            record = self._transcript.append(call.head, [message])
            conn.execute(_INSERT, {**values, "record": record})
        return Reply(
            record=record,
            message=self._transcript.message(record),
            model=model,
            finish_reason=finish_reason,
            problem=problem,
            usage=usage,
            duration_ms=duration_ms,
        )


def _tokens(usage: Usage) -> dict[str, int]:
    return {
        "input_tokens": usage.input,
        "output_tokens": usage.output,
        "cached_tokens": usage.cached,
        "thought_tokens": usage.thoughts,
    }


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
    spent, out = (
        sum(m["input_tokens"] for m in models.values()),
        sum(m["output_tokens"] for m in models.values()),
    )
    return {
        "total_tokens": spent + out,
        "input_tokens": spent,
        "output_tokens": out,
        "cached": sum(m["cached"] for m in models.values()),
        "duration_ms": sum(m["duration_ms"] for m in models.values()),
        "tool_calls": calls,
        "models": models,
    }
