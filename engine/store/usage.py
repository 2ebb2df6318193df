"""usage: the tokens that a run's model calls used, and those that calls under way have reserved."""

import sqlite3
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import NamedTuple

from interlock.engine.store import insertion
from interlock.services.sqlite import later, transaction

_TURN = "(role = 'main' and finish_reason is not null and problem is null)"
"""An answer that counts as a turn; retries don't."""


class Answered(NamedTuple):
    """A model's answered calls."""

    model: str
    input_tokens: int
    output_tokens: int
    turns: int
    agent_turns: int
    """Those of sub-agents."""


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

    conn: sqlite3.Connection
    run: str
    epoch: int

    def transaction(self) -> AbstractContextManager[object]:
        """What is read and reserved in it stays true until it ends."""
        return transaction(self.conn)

    def reserve(self, task: str, agent: str, model: str, tokens: int) -> None:
        row = {"run": self.run, "task": task, "epoch": self.epoch, "agent": agent, "model": model}
        row |= {"tokens": tokens, "under_way": 1, "at": time.time()}
        self.conn.execute(*insertion("reservations", row, "insert or replace"))

    def settle(self, task: str) -> None:
        """Drop the reservation with the next commit, which holds the reply if there is one."""
        key = (self.run, task, self.epoch)
        later(self.conn, "delete from reservations where run = ? and task = ? and epoch = ?", key)

    def lose(self, task: str) -> None:
        """Keep counting the reservation: the call was cut off, so its real usage is unknown."""
        with transaction(self.conn) as conn:
            conn.execute(
                "update reservations set under_way = 0 where run = ? and task = ? and epoch = ?",
                (self.run, task, self.epoch),
            )

    def answered(self, runs: Sequence[str]) -> list[Answered]:
        """What the runs' answered calls used, by model."""
        rows = self.conn.execute(
            f"select model, sum(input_tokens), sum(output_tokens), sum({_TURN}), sum({_TURN} and agent <> '') "
            f"from model_calls where {_among(runs)} group by model",
            runs,
        )
        return [Answered(*row) for row in rows]

    def reserved(self, runs: Sequence[str]) -> list[Reserved]:
        """What the runs' calls without an answer reserve; one that an earlier driver left behind was cut off."""
        rows = self.conn.execute(
            "select model, sum(tokens), count(*), under_way and run = ? and epoch = ? as open from reservations "
            f"where {_among(runs)} group by model, open",
            (self.run, self.epoch, *runs),
        )
        return [Reserved(model, tokens, count, bool(is_open)) for model, tokens, count, is_open in rows]


def _among(runs: Sequence[str]) -> str:
    return f"run in ({', '.join('?' * len(runs))})"
