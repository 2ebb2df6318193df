"""model_calls: each model call of a run, with its reply and tokens (`docs/internals.md#replies-by-ordinal`)."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from interlock.engine.store import encode_json_keys_parameter, json_keys_subquery_sql
from interlock.engine.store.connection import Connection
from interlock.engine.store.runs import TURN, list_run_and_subtasks, read_options
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
    def _answered_tasks(self) -> set[str]:
        """Tasks whose call has a reply; this drive alone adds any."""
        query = "select task from model_calls where run = $1"
        return {task for (task,) in self.conn.execute(query, (self.run,), tables=("model_calls",))}

    def recorded(self, task: str) -> Reply | None:
        if task not in self._answered_tasks:
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
            message=self.transcript.read_message(record),
            model=model,
            finish_reason=finish,
            problem=problem,
            usage=_to_usage(used),
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
            if last is None:
                last = read_first_ordinals_by_agent_and_role(self.conn, self.run).get((agent, role), 0) - 1
            self._made[agent, role] = last + 1  # a replay adds those of its record
        made = self._made[agent, role]
        self._made[agent, role] = made + 1
        return made

    def unused(self, agent: str, role: str, ordinal: int) -> None:
        if self._made[agent, role] == ordinal + 1:  # else another request has the next one already
            self._made[agent, role] = ordinal

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
            self._answered_tasks.add(call.task)
        return reply.model_copy(update={"record": record, "message": self.transcript.read_message(record)})


def count_replies_by_agent_and_role(conn: Connection, run: str) -> list[tuple[str, str, int]]:
    """Return agent, role and number of replies in a run whose plan another carries out: see
    `read_first_ordinals_by_agent_and_role`.

    Ordinals continue from there, so that one script covers both; that run keeps them: the plan's may be deleted.
    """
    sql = "select agent, role, count(*) from model_calls where run = $1 group by agent, role"
    return conn.execute(sql, (run,), tables=("model_calls",)).fetchall()


def read_first_ordinals_by_agent_and_role(conn: Connection, run: str) -> dict[tuple[str, str], int]:
    """Agent and role → ordinal of their first reply in this run, if it isn't 0."""
    kept: list[tuple[str, str, int]] = read_options(conn, run).get("calls_before", [])
    return {(agent, role): number for agent, role, number in kept}


def read_reply_usage(conn: Connection, run: str, record: str) -> Usage:
    """Tokens of the request whose reply is `record`."""
    sql = f"select {_USAGE} from model_calls where run = $1 and record = $2"
    row = conn.execute(sql, (run, record), tables=("model_calls",)).fetchone()
    return _to_usage(row) if row else Usage()


def _to_usage(row: Sequence[Any]) -> Usage:
    return Usage(**dict(zip(("input", "output", "cached", "written", "thoughts", "usd"), row, strict=True)))


def sum_usage_with_subtasks(conn: Connection, run: str) -> dict[str, Any]:
    """Tokens and calls of a run and its subtasks, in total and by model, as `stats` shows them."""
    runs = list_run_and_subtasks(conn, run)
    of_task, listed = f"run in {json_keys_subquery_sql()}", (encode_json_keys_parameter(runs),)
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


_LATEST = f"""
select model, input_tokens + output_tokens, coalesce(usd, 0.0), cached_tokens + written_tokens, at from (
    select *, row_number() over (partition by model order by at desc, ordinal desc) as place
    from model_calls where run in {json_keys_subquery_sql()}) as of_model where place = 1
"""
"""A model's latest call."""


class AnsweredCalls(NamedTuple):
    """A model's answered calls."""

    model: str
    input_tokens: int
    output_tokens: int
    turns: int
    agent_turns: int
    """Those of sub-agents."""
    usd: float
    """What they cost, as far as it was known when they were answered."""
    unpriced: tuple[int, int]
    """Input and output tokens of the others."""
    latest_tokens: int
    latest_usd: float
    latest_cached: int
    """Input tokens that the latest call read from the provider's cache or wrote to it: the next one reads them."""
    latest_at: float


class ReservedCalls(NamedTuple):
    """A model's calls without an answer."""

    model: str
    tokens: int
    """Estimated, of the requests."""
    calls: int
    under_way: bool
    """False: cut off by a kill."""


@dataclass(frozen=True)
class UsageLedger:
    """What the calls of a run's driver reserve, and what those of any runs used."""

    conn: Connection
    run: str
    epoch: int
    outlives_kills: bool = True
    """False: no commit is made for a reservation, as of a replay, which nobody goes on with."""

    def transaction(self) -> AbstractContextManager[object]:
        """What is read and reserved in it stays true until it ends, when it is committed."""
        return self.conn.transaction() if self.outlives_kills else nullcontext()

    def add_reservation(self, task: str, agent: str, model: str, tokens: int) -> None:
        row = {"run": self.run, "task": task, "epoch": self.epoch, "agent": agent, "model": model}
        row |= {"tokens": tokens, "under_way": 1, "at": unix_time()}
        self.conn.insert("reservations", row, "replace")

    def drop_reservation(self, task: str) -> None:
        """Drop the reservation with the next commit, which holds the reply if there is one."""
        self.conn.delete("reservations", {"run": self.run, "task": task, "epoch": self.epoch})

    def mark_reservation_cut_off(self, task: str) -> None:
        """Keep counting the reservation: the call was cut off, so its real usage is unknown."""
        with self.conn.transaction() as conn:
            where = {"run": self.run, "task": task, "epoch": self.epoch}
            conn.update("reservations", {"under_way": 0}, where)

    def sum_answered_calls_by_model(self, runs: Sequence[str]) -> list[AnsweredCalls]:
        """What the runs' answered calls used, by model."""
        listed = (encode_json_keys_parameter(runs),)
        rows = self.conn.execute(
            f"select model, sum(input_tokens), sum(output_tokens), sum({TURN}), "
            f"sum({TURN} * case when agent <> '' then 1 else 0 end), coalesce(sum(usd), 0.0), "
            "sum(case when usd is null then input_tokens else 0 end), "
            "sum(case when usd is null then output_tokens else 0 end) "
            f"from model_calls where run in {json_keys_subquery_sql()} group by model",
            listed,
            tables=("model_calls",),
        )
        found = self.conn.execute(_LATEST, listed, tables=("model_calls",))
        latest = {model: figures for model, *figures in found}
        return [
            AnsweredCalls(name, spent, out, turns, agents, usd, (unpriced_in, unpriced_out), *latest[name])
            for name, spent, out, turns, agents, usd, unpriced_in, unpriced_out in rows
        ]

    def sum_reserved_calls_by_model(self, runs: Sequence[str]) -> list[ReservedCalls]:
        """What the runs' calls without an answer reserve; one that an earlier driver left behind was cut off."""
        rows = self.conn.execute(
            "select model, sum(tokens), count(*), "
            "case when under_way = 1 and run = $1 and epoch = $2 then 1 else 0 end as open "
            f"from reservations where run in {json_keys_subquery_sql(3)} group by model, open",
            (self.run, self.epoch, encode_json_keys_parameter(runs)),
            tables=("reservations",),
        )
        return [ReservedCalls(model, tokens, count, bool(is_open)) for model, tokens, count, is_open in rows]
