"""model_calls: each model call of a run, with its reply and tokens (`engine.md` 20)."""

import time
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from interlock.engine.store import put, read_options
from interlock.engine.store.connection import Connection
from interlock.engine.store.lineage import with_subtasks
from interlock.services.models.request import Request
from interlock.services.transcript import ChainTranscript
from interlock.state.messages import ModelCall, Reply, Usage


@dataclass
class SqlModelLog:
    """Implements the models service's `ModelLog`: role, ordinal, request hash, reply of each call (`engine.md` 20)."""

    conn: Connection
    transcript: ChainTranscript
    run: str
    _made: dict[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])
    """The next ordinal by agent and role; only this drive adds calls."""

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
            (last,) = self.conn.execute(
                "select max(ordinal) from model_calls where run = ? and agent = ? and role = ?",
                (self.run, agent, role),
            ).fetchone()
            before = self._before.get((agent, role), 0)
            self._made[agent, role] = before if last is None else last + 1
        self._made[agent, role] += 1
        return self._made[agent, role] - 1

    def unused(self, agent: str, role: str, ordinal: int) -> None:
        if self._made[agent, role] == ordinal + 1:  # else another request has the next one already
            self._made[agent, role] = ordinal

    @cached_property
    def _before(self) -> dict[tuple[str, str], int]:
        return calls_before(self.conn, self.run)

    def record(self, call: ModelCall, request: Request, reply: Reply, request_hash: str) -> Reply:
        with self.conn.transaction() as conn:
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
            put(conn, "model_calls", row)
        return reply.model_copy(update={"record": record, "message": self.transcript.message(record)})


def calls_made(conn: Connection, run: str) -> list[tuple[str, str, int]]:
    """Agent, role and number of their replies, in a run whose plan another carries out, as `calls_before` reads them.

    Ordinals continue from there, so that one script covers both; that run keeps them: the plan's may be deleted.
    """
    sql = "select agent, role, count(*) from model_calls where run = ? group by agent, role"
    return conn.execute(sql, (run,)).fetchall()


def calls_before(conn: Connection, run: str) -> dict[tuple[str, str], int]:
    """Agent and role → ordinal of their first reply in this run, if it isn't 0."""
    kept: list[tuple[str, str, int]] = read_options(conn, run).get("calls_before", [])
    return {(agent, role): number for agent, role, number in kept}


def usage_of(conn: Connection, run: str, record: str) -> Usage:
    """Tokens of the request whose reply is `record`."""
    row = conn.execute(
        "select input_tokens, output_tokens, cached_tokens, thought_tokens from model_calls "
        "where run = ? and record = ?",
        (run, record),
    ).fetchone()
    return Usage(input=row[0], output=row[1], cached=row[2], thoughts=row[3]) if row else Usage()


def usage_stats(conn: Connection, run: str) -> dict[str, Any]:
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
