"""statistics: turns, tokens, costs, requests and failures of all runs, by day, model, workflow or repository."""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from math import gcd
from pathlib import Path
from typing import Any, Literal

from interlock.engine.store import select_rows
from interlock.engine.store.runs import TURN

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


def compute_statistics(home: Path, by: By, since: float = 0.0) -> dict[str, Sums]:
    """Key → sums, ordered by key: days (YYYY-MM-DD, of this machine's time zone), or names. `since`: unix time.

    By model, requests and failures aren't counted: they are the runs'.
    """
    found: dict[str, Sums] = {}
    for key, sums in _partial_sums(home, by, since):
        found.setdefault(_format_key(by, key), Sums()).add(sums)
    return dict(sorted(found.items()))


_OWN = """
not exists (select 1 from runs f join runs p on p.run = f.parent where f.run = {0}.run and {0}.{1} < f.created)
"""
"""A row that isn't a fork's copy of one that its parent still has: it was made before the fork."""


def _partial_sums(home: Path, by: By, since: float) -> Iterator[tuple[Any, Sums]]:
    key = "m.model" if by == "model" else _group_key_sql(by, "m.at")
    runs = "count(distinct m.run)" if by == "model" else "0"
    join = "" if by in ("day", "model") else "join runs r on r.run = m.run"
    sql = (
        f"select {key}, {runs}, sum({TURN}), sum(m.input_tokens), sum(m.output_tokens), "
        "sum(m.cached_tokens), coalesce(sum(m.usd), 0.0), sum(case when m.usd is null then 1 else 0 end) "
        f"from model_calls m {join} where m.at >= $1 and {_OWN.format('m', 'at')} group by 1"
    )
    for name, runs, *sums in select_rows(home, sql, since):
        yield name, Sums(runs, *sums)
    if by == "model":
        return
    sql = f"select {_group_key_sql(by, 'r.created')}, count(*) from runs r where r.created >= $1 group by 1"
    for name, runs in select_rows(home, sql, since):
        yield name, Sums(runs=runs)
    yield from _request_sums(home, by, since)
    which = "r.status = 'failed' and r.updated >= $1"
    sql = f"select {_group_key_sql(by, 'r.updated')}, r.outcome, r.error from runs r where {which}"
    for name, outcome, error in select_rows(home, sql, since):
        kind = outcome if outcome not in ("", "failed") else json.loads(error or "{}").get("type", "failed")
        yield name, Sums(failures={kind: 1})


def _request_sums(home: Path, by: By, since: float) -> Iterator[tuple[Any, Sums]]:
    refused = " or ".join(f"""a.answer like '%"choice":"{choice}"%'""" for choice in ("reject", "cancel"))
    sql = (
        f"select {_group_key_sql(by, 'a.asked_at')}, count(*), "
        f"sum(case when {refused} then 1 else 0 end), count(a.answer), "
        "coalesce(sum(case when a.answered_at > a.asked_at then a.answered_at - a.asked_at end), 0.0) "
        "from approvals a join runs r on r.run = a.run "
        """where a.asked_at >= $1 and a.request like '%"kind":"approval"%' """
        f"and (a.interrupt is not null or a.answer is not null) and {_OWN.format('a', 'asked_at')} group by 1"
    )
    for name, asked, said_no, answered, waited in select_rows(home, sql, since):
        yield name, Sums(asked=asked, given=answered - said_no, refused=said_no, waited_s=waited)


def _group_key_sql(by: By, time_column: str) -> str:
    if by == "day":
        return f"cast(round({time_column} / {_UNIT_S}.0 - 0.5) as integer)"
    return {"workflow": "r.workflow", "repository": "r.workspace", "model": "''"}[by]


def _format_key(by: By, key: Any) -> str:
    if by == "day":
        return _format_day(key)
    return _repository_or_workspace_folder(key) if by == "repository" else str(key)


@lru_cache(maxsize=10_000)
def _format_day(unit: int) -> str:
    return datetime.fromtimestamp(unit * _UNIT_S).date().isoformat()


@lru_cache
def _repository_or_workspace_folder(workspace: str) -> str:
    """The repository around a folder, else the folder itself."""
    folder = Path(workspace)
    return str(next((one for one in (folder, *folder.parents) if (one / ".git").exists()), folder))
