"""usage: the tokens that a run's model calls used, and those that calls under way have reserved."""

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import NamedTuple

from interlock.engine.store import put
from interlock.engine.store.connection import Connection

TURN = "case when role = 'main' and finish_reason is not null and problem is null then 1 else 0 end"
"""An answer that counts as a turn; retries don't."""


_LATEST = """
select model, input_tokens + output_tokens, coalesce(usd, 0.0) from (
    select *, row_number() over (partition by model order by at desc, ordinal desc) as place
    from model_calls where {}) as of_model where place = 1
"""
"""A model's latest call."""


class Answered(NamedTuple):
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


class Reserved(NamedTuple):
    """A model's calls without an answer."""

    model: str
    tokens: int
    """Estimated, of the requests."""
    calls: int
    under_way: bool
    """False: cut off by a kill."""


@dataclass(frozen=True)
class Usage:
    """What the calls of a run's driver reserve, and what those of any runs used."""

    conn: Connection
    run: str
    epoch: int

    def transaction(self) -> AbstractContextManager[object]:
        """What is read and reserved in it stays true until it ends."""
        return self.conn.transaction()

    def reserve(self, task: str, agent: str, model: str, tokens: int) -> None:
        row = {"run": self.run, "task": task, "epoch": self.epoch, "agent": agent, "model": model}
        row |= {"tokens": tokens, "under_way": 1, "at": time.time()}
        put(self.conn, "reservations", row, "replace")

    def settle(self, task: str) -> None:
        """Drop the reservation with the next commit, which holds the reply if there is one."""
        key = (self.run, task, self.epoch)
        sql = "delete from reservations where run = ? and task = ? and epoch = ?"
        self.conn.later("reservations", sql, key)

    def lose(self, task: str) -> None:
        """Keep counting the reservation: the call was cut off, so its real usage is unknown."""
        with self.conn.transaction() as conn:
            conn.execute(
                "update reservations set under_way = 0 where run = ? and task = ? and epoch = ?",
                (self.run, task, self.epoch),
            )

    def answered(self, runs: Sequence[str]) -> list[Answered]:
        """What the runs' answered calls used, by model."""
        rows = self.conn.execute(
            f"select model, sum(input_tokens), sum(output_tokens), sum({TURN}), "
            f"sum({TURN} * case when agent <> '' then 1 else 0 end), coalesce(sum(usd), 0.0), "
            "sum(case when usd is null then input_tokens else 0 end), "
            "sum(case when usd is null then output_tokens else 0 end) "
            f"from model_calls where {_among(runs)} group by model",
            runs,
        )
        found = self.conn.execute(_LATEST.format(_among(runs)), runs)
        latest = {model: (tokens, usd) for model, tokens, usd in found}
        return [
            Answered(name, spent, out, turns, agents, usd, (unpriced_in, unpriced_out), *latest[name])
            for name, spent, out, turns, agents, usd, unpriced_in, unpriced_out in rows
        ]

    def reserved(self, runs: Sequence[str]) -> list[Reserved]:
        """What the runs' calls without an answer reserve; one that an earlier driver left behind was cut off."""
        rows = self.conn.execute(
            "select model, sum(tokens), count(*), "
            "case when under_way = 1 and run = ? and epoch = ? then 1 else 0 end as open "
            f"from reservations where {_among(runs)} group by model, open",
            (self.run, self.epoch, *runs),
        )
        return [Reserved(model, tokens, count, bool(is_open)) for model, tokens, count, is_open in rows]


def _among(runs: Sequence[str]) -> str:
    return f"run in ({', '.join('?' * len(runs))})"
