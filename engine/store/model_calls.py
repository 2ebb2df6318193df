"""model_calls: each model call of a run, with its reply and tokens (`docs/internals.md#replies-by-ordinal`)."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from interlock.engine.store import among, listed_as_keys, read_options
from interlock.engine.store.connection import Connection
from interlock.engine.store.runs import with_subtasks
from interlock.services.models.request import ModelRequest
from interlock.services.transcript import ChainTranscript
from interlock.state.clock import unix_time
from interlock.state.messages import ModelCall, Reply, Usage

_USAGE = "input_tokens, output_tokens, cached_tokens, written_tokens, thought_tokens, usd"


@dataclass
class SqlModelLog:
    """Implements the models service's `ModelLog`: role, ordinal, request hash, reply of each call."""

    conn: Connection
    transcript: ChainTranscript
    run: str
    _made: dict[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])
    """The next ordinal by agent and role; only this drive adds calls."""

    @cached_property
    def _answered(self) -> set[str]:
        """Tasks whose call has a reply; this drive alone adds any."""
        query = "select task from model_calls where run = $1"
        return {task for (task,) in self.conn.execute(query, (self.run,), tables=("model_calls",))}

    def recorded(self, task: str) -> Reply | None:
        if task not in self._answered:
            return None
        row = self.conn.execute(
            f"select record, model, finish_reason, problem, {_USAGE}, duration_ms "
            "from model_calls where run = $1 and task = $2",
            (self.run, task),
            tables=("model_calls",),
        ).fetchone()
        if row is None:
            return None
        record, model, finish, problem, *used, ms = row
        return Reply(
            record=record,
            message=self.transcript.message(record),
            model=model,
            finish_reason=finish,
            problem=problem,
            usage=_usage(used),
            duration_ms=ms,
            replayed=True,
        )

    def ordinal(self, agent: str, role: str) -> int:
        if (agent, role) not in self._made:
            (last,) = self.conn.execute(
                "select max(ordinal) from model_calls where run = $1 and agent = $2 and role = $3",
                (self.run, agent, role),
                tables=("model_calls",),
            ).fetchone()
            kept = self._before.get((agent, role), 0) if last is None else last + 1
            self._made[agent, role] = kept  # a replay adds those of its record
        made = self._made[agent, role]
        self._made[agent, role] = made + 1
        return made

    def unused(self, agent: str, role: str, ordinal: int) -> None:
        if self._made[agent, role] == ordinal + 1:  # else another request has the next one already
            self._made[agent, role] = ordinal

    @cached_property
    def _before(self) -> dict[tuple[str, str], int]:
        return calls_before(self.conn, self.run)

    def record(self, call: ModelCall, request: ModelRequest, reply: Reply, request_hash: str) -> Reply:
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
                "at": unix_time(),
                **reply.model_dump(include={"model", "finish_reason", "problem", "duration_ms"}),
                "input_tokens": reply.usage.input,
                "output_tokens": reply.usage.output,
                "cached_tokens": reply.usage.cached,
                "written_tokens": reply.usage.written,
                "thought_tokens": reply.usage.thoughts,
                "usd": reply.usage.usd,
            }
            conn.insert("model_calls", row)
            self._answered.add(call.task)
        return reply.model_copy(update={"record": record, "message": self.transcript.message(record)})


def calls_made(conn: Connection, run: str) -> list[tuple[str, str, int]]:
    """Agent, role and number of their replies, in a run whose plan another carries out, as `calls_before` reads them.

    Ordinals continue from there, so that one script covers both; that run keeps them: the plan's may be deleted.
    """
    sql = "select agent, role, count(*) from model_calls where run = $1 group by agent, role"
    return conn.execute(sql, (run,), tables=("model_calls",)).fetchall()


def calls_before(conn: Connection, run: str) -> dict[tuple[str, str], int]:
    """Agent and role → ordinal of their first reply in this run, if it isn't 0."""
    kept: list[tuple[str, str, int]] = read_options(conn, run).get("calls_before", [])
    return {(agent, role): number for agent, role, number in kept}


def usage_of(conn: Connection, run: str, record: str) -> Usage:
    """Tokens of the request whose reply is `record`."""
    sql = f"select {_USAGE} from model_calls where run = $1 and record = $2"
    row = conn.execute(sql, (run, record), tables=("model_calls",)).fetchone()
    return _usage(row) if row else Usage()


def _usage(row: Sequence[Any]) -> Usage:
    return Usage(**dict(zip(("input", "output", "cached", "written", "thoughts", "usd"), row, strict=True)))


def usage_stats(conn: Connection, run: str) -> dict[str, Any]:
    """Tokens and calls of a run and its subtasks, in total and by model, as `stats` shows them."""
    runs = with_subtasks(conn, run)
    of_task, listed = f"run in {among()}", (listed_as_keys(runs),)
    rows = conn.execute(
        "select model, count(*), sum(input_tokens), sum(output_tokens), sum(cached_tokens), sum(duration_ms), "
        f"case when count(usd) = count(*) then sum(usd) end from model_calls where {of_task} "
        "group by model order by model",
        listed,
        tables=("model_calls",),
    ).fetchall()
    names = ("requests", "input_tokens", "output_tokens", "cached", "duration_ms", "usd")
    models = {model: dict(zip(names, figures, strict=True)) for model, *figures in rows}
    (calls,) = conn.execute(
        f"select count(*) from journal where {of_task} and state = 'done'", listed, tables=("journal",)
    ).fetchone()
    total = {
        key: sum(model[key] for model in models.values())
        for key in ("input_tokens", "output_tokens", "cached", "duration_ms")
    }
    spent = total["input_tokens"] + total["output_tokens"]
    costs = [model["usd"] for model in models.values()]
    usd = sum(costs) if costs and None not in costs else None
    return {"total_tokens": spent, **total, "tool_calls": calls, "usd": usd, "models": models}
