"""usage: the tokens that model calls used, those under way have reserved, and what runs did and cost, added up."""

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from math import gcd
from pathlib import Path
from typing import Any, Literal, NamedTuple

from interlock.engine.store import among, listed_as_keys, select
from interlock.engine.store.connection import Connection
from interlock.state.clock import unix_time

TURN = "case when role = 'main' and finish_reason is not null and problem is null then 1 else 0 end"
"""An answer that counts as a turn; retries don't."""


_LATEST = f"""
select model, input_tokens + output_tokens, coalesce(usd, 0.0), cached_tokens + written_tokens, at from (
    select *, row_number() over (partition by model order by at desc, ordinal desc) as place
    from model_calls where run in {among()}) as of_model where place = 1
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
    latest_cached: int
    """Input tokens that the latest call read from the provider's cache or wrote to it: the next one reads them."""
    latest_at: float


class Reserved(NamedTuple):
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

    def reserve(self, task: str, agent: str, model: str, tokens: int) -> None:
        row = {"run": self.run, "task": task, "epoch": self.epoch, "agent": agent, "model": model}
        row |= {"tokens": tokens, "under_way": 1, "at": unix_time()}
        self.conn.insert("reservations", row, "replace")

    def settle(self, task: str) -> None:
        """Drop the reservation with the next commit, which holds the reply if there is one."""
        self.conn.delete("reservations", {"run": self.run, "task": task, "epoch": self.epoch})

    def lose(self, task: str) -> None:
        """Keep counting the reservation: the call was cut off, so its real usage is unknown."""
        with self.conn.transaction() as conn:
            where = {"run": self.run, "task": task, "epoch": self.epoch}
            conn.update("reservations", {"under_way": 0}, where)

    def answered(self, runs: Sequence[str]) -> list[Answered]:
        """What the runs' answered calls used, by model."""
        listed = (listed_as_keys(runs),)
        rows = self.conn.execute(
            f"select model, sum(input_tokens), sum(output_tokens), sum({TURN}), "
            f"sum({TURN} * case when agent <> '' then 1 else 0 end), coalesce(sum(usd), 0.0), "
            "sum(case when usd is null then input_tokens else 0 end), "
            "sum(case when usd is null then output_tokens else 0 end) "
            f"from model_calls where run in {among()} group by model",
            listed,
            tables=("model_calls",),
        )
        found = self.conn.execute(_LATEST, listed, tables=("model_calls",))
        latest = {model: figures for model, *figures in found}
        return [
            Answered(name, spent, out, turns, agents, usd, (unpriced_in, unpriced_out), *latest[name])
            for name, spent, out, turns, agents, usd, unpriced_in, unpriced_out in rows
        ]

    def reserved(self, runs: Sequence[str]) -> list[Reserved]:
        """What the runs' calls without an answer reserve; one that an earlier driver left behind was cut off."""
        rows = self.conn.execute(
            "select model, sum(tokens), count(*), "
            "case when under_way = 1 and run = $1 and epoch = $2 then 1 else 0 end as open "
            f"from reservations where run in {among(3)} group by model, open",
            (self.run, self.epoch, listed_as_keys(runs)),
            tables=("reservations",),
        )
        return [Reserved(model, tokens, count, bool(is_open)) for model, tokens, count, is_open in rows]


By = Literal["day", "model", "workflow", "repository"]
_UNIT_S = gcd(3_600, time.timezone, time.altzone)
"""Days begin at a multiple of it in this machine's time zone."""


@dataclass
class Sums:
    """One line."""

    runs: int = 0
    turns: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    """Of the input: read from a provider's cache."""
    usd: float = 0.0
    unpriced: int = 0
    """Model calls whose price isn't known."""
    asked: int = 0
    """Approvals that a person was asked for."""
    given: int = 0
    refused: int = 0
    waited_s: float = 0.0
    """From the requests to the answers."""
    failures: dict[str, int] = field(default_factory=dict[str, int])
    """Error type → runs that failed so."""

    @property
    def cached_share(self) -> float | None:
        """Share of the input that was read from a provider's cache; None: there was no input."""
        return self.cached_tokens / self.input_tokens if self.input_tokens else None

    def add(self, other: "Sums") -> None:
        for name, value in vars(other).items():
            if name != "failures":
                setattr(self, name, getattr(self, name) + value)
        for kind, number in other.failures.items():
            self.failures[kind] = self.failures.get(kind, 0) + number


def statistics(home: Path, by: By, since: float = 0.0) -> dict[str, Sums]:
    """Key → sums, ordered by key: days (YYYY-MM-DD, of this machine's time zone), or names. `since`: unix time.

    By model, requests and failures aren't counted: they are the runs'.
    """
    found: dict[str, Sums] = {}
    for key, sums in _parts(home, by, since):
        found.setdefault(_shown(by, key), Sums()).add(sums)
    return dict(sorted(found.items()))


_OWN = """
not exists (select 1 from runs f join runs p on p.run = f.parent where f.run = {0}.run and {0}.{1} < f.created)
"""
"""A row that isn't a fork's copy of one that its parent still has: it was made before the fork."""


def _parts(home: Path, by: By, since: float) -> Iterator[tuple[Any, Sums]]:
    key = "m.model" if by == "model" else _key(by, "m.at")
    runs = "count(distinct m.run)" if by == "model" else "0"
    join = "" if by in ("day", "model") else "join runs r on r.run = m.run"
    sql = (
        f"select {key}, {runs}, sum({TURN}), sum(m.input_tokens), sum(m.output_tokens), "
        "sum(m.cached_tokens), coalesce(sum(m.usd), 0.0), sum(case when m.usd is null then 1 else 0 end) "
        f"from model_calls m {join} where m.at >= $1 and {_OWN.format('m', 'at')} group by 1"
    )
    for name, runs, *sums in select(home, sql, since):
        yield name, Sums(runs, *sums)
    if by == "model":
        return
    sql = f"select {_key(by, 'r.created')}, count(*) from runs r where r.created >= $1 group by 1"
    for name, runs in select(home, sql, since):
        yield name, Sums(runs=runs)
    yield from _requests(home, by, since)
    which = "r.status = 'failed' and r.updated >= $1"
    sql = f"select {_key(by, 'r.updated')}, r.outcome, r.error from runs r where {which}"
    for name, outcome, error in select(home, sql, since):
        kind = outcome if outcome not in ("", "failed") else json.loads(error or "{}").get("type", "failed")
        yield name, Sums(failures={kind: 1})


def _requests(home: Path, by: By, since: float) -> Iterator[tuple[Any, Sums]]:
    refused = " or ".join(f"""a.answer like '%"choice":"{choice}"%'""" for choice in ("reject", "cancel"))
    sql = (
        f"select {_key(by, 'a.asked_at')}, count(*), sum(case when {refused} then 1 else 0 end), count(a.answer), "
        "coalesce(sum(case when a.answered_at > a.asked_at then a.answered_at - a.asked_at end), 0.0) "
        "from approvals a join runs r on r.run = a.run "
        """where a.asked_at >= $1 and a.request like '%"kind":"approval"%' """
        f"and (a.interrupt is not null or a.answer is not null) and {_OWN.format('a', 'asked_at')} group by 1"
    )
    for name, asked, said_no, answered, waited in select(home, sql, since):
        yield name, Sums(asked=asked, given=answered - said_no, refused=said_no, waited_s=waited)


def _key(by: By, at: str) -> str:
    if by == "day":
        return f"cast(round({at} / {_UNIT_S}.0 - 0.5) as integer)"
    return {"workflow": "r.workflow", "repository": "r.workspace", "model": "''"}[by]


def _shown(by: By, key: Any) -> str:
    if by == "day":
        return _day(key)
    return _repository(key) if by == "repository" else str(key)


@lru_cache(maxsize=10_000)
def _day(unit: int) -> str:
    return datetime.fromtimestamp(unit * _UNIT_S).date().isoformat()


@lru_cache
def _repository(workspace: str) -> str:
    """The repository around a folder, else the folder itself."""
    folder = Path(workspace)
    return str(next((one for one in (folder, *folder.parents) if (one / ".git").exists()), folder))
