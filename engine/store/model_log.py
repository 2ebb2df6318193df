"""model_log: every model call leaves a record: role, ordinal, request hash, reply (`engine.md` 20)."""

import sqlite3
import time
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from interlock.engine.read.runs import with_subtasks
from interlock.engine.store.database import insertion
from interlock.services.models.request import Request
from interlock.services.sqlite import transaction
from interlock.services.transcript import ChainTranscript
from interlock.state.models import ModelCall, Reply, Usage


@dataclass
class SqlModelLog:
    """Implements the models service's `ModelLog`."""

    conn: sqlite3.Connection
    transcript: ChainTranscript
    run: str

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
        (count,) = self.conn.execute(
            "select count(*) from model_calls where run in (?, ?) and agent = ? and role = ?",
            (self.run, self._plan, agent, role),
        ).fetchone()
        return count

    @cached_property
    def _plan(self) -> str:
        """The run that made the plan which this one carries out: one piece of work, so a script goes on."""
        found = self.conn.execute(
            "select p.run from runs r join runs p on p.run = r.parent "
            "where r.run = ? and p.workflow = 'plan' and r.workflow = 'main'",
            (self.run,),
        ).fetchone()
        return found[0] if found else self.run

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
        return reply.model_copy(update={"record": record, "message": self.transcript.message(record)})


def usage_of(conn: sqlite3.Connection, run: str, record: str) -> Usage:
    """Tokens of the request whose reply is `record`."""
    row = conn.execute(
        "select input_tokens, output_tokens, cached_tokens, thought_tokens from model_calls "
        "where run = ? and record = ?",
        (run, record),
    ).fetchone()
    return Usage(input=row[0], output=row[1], cached=row[2], thoughts=row[3]) if row else Usage()


def usage_stats(conn: sqlite3.Connection, run: str) -> dict[str, Any]:
    """Tokens and calls of a run and its subtasks, in all and by model, as `stats` shows them."""
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
