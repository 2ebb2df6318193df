"""traces: the trace that a run belongs to, and what of it a collector hasn't got yet."""

import secrets
from pathlib import Path
from typing import Any, NamedTuple

from interlock.engine.store import Store, select


class Trace(NamedTuple):
    run: str
    trace: str
    """32 hex digits."""
    parent: str
    """Span that the run's first drive is a part of: 16 hex digits; empty: none."""
    root: str
    """Span of the run's first drive, of which the later ones are parts."""
    until: float
    """Unix time up to which a collector has the run's spans; 0: none yet."""


class Fresh(NamedTuple):
    """Rows of a run that ended after a time."""

    steps: list[Any]
    models: list[Any]
    answered: list[Any]


def open_trace(store: Store, run: str, above: tuple[str, str] | None) -> Trace:
    """The run's trace; made if it has none, as a part of `above` (trace and span), or of its parent's trace."""
    if found := _trace(store.home, run):
        return found
    rows = select(store.home, "select coalesce(subtask_of, parent) from runs where run = $1", run)
    if rows and rows[0][0] and (over := _trace(store.home, rows[0][0])):
        above = over.trace, over.root
    trace, parent = above or (secrets.token_hex(16), "")
    made = Trace(run, trace, parent, secrets.token_hex(8), 0.0)
    with store.writing() as conn:
        conn.insert("traces", made._asdict(), "keep")
    return _trace(store.home, run) or made


def _trace(home: Path, run: str) -> Trace | None:
    rows = select(home, "select run, trace, parent, root, until from traces where run = $1", run)
    return Trace(*rows[0]) if rows else None


def exported(store: Store, run: str, until: float) -> None:
    with store.writing() as conn:
        conn.update("traces", {"until": until}, {"run": run})


def fresh(home: Path, run: str, since: float) -> Fresh:
    return Fresh(
        select(
            home, "select * from steps where run = $1 and started + ms / 1000 > $2 order by seq", run, since
        ),
        select(home, "select * from model_calls where run = $1 and at > $2 order by at", run, since),
        select(home, "select * from approvals where run = $1 and answered_at > $2 order by seq", run, since),
    )


def waiting(home: Path) -> int:
    """How many requests wait for a person, over all runs."""
    sql = "select count(*) from approvals where answer is null and superseded = 0 and interrupt is not null"
    rows = select(home, sql)
    return rows[0][0] if rows else 0
