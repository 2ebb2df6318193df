"""retention: how large the state directory is and what of, and which ended runs to delete because of age or size."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from interlock.engine.store import Store, reading, select
from interlock.engine.store.address import PARTS
from interlock.engine.store.runs import remove_run
from interlock.state.errors import BusyError

_DAY_S = 86_400
GB = 1_000_000_000
_WEIGHED = {
    "chain": "length(body)",
    "checkpoints": "length(checkpoint) + length(metadata)",
    "writes": "length(value)",
    "journal": "coalesce(length(result), 0) + coalesce(length(args), 0)",
    "step_rows": "60 + length(nodes)",
    "model_calls": "250",
}
"""Table → about how many bytes a row takes."""


class Due(NamedTuple):
    run: str
    title: str
    updated: float
    size: int
    """About how many bytes it takes in the database."""
    why: str


class Plan(NamedTuple):
    due: list[Due]
    size: int
    """Bytes of the state directory now."""
    waiting: list[str]
    """Runs that would be due, but can be resumed: they wait for a person, or were interrupted."""


def sizes(home: Path) -> dict[str, int]:
    """Part of the state directory → bytes, the largest first; the database without the pages that are free."""
    found = {part: _size(home / part) for part in PARTS}
    with reading(home) as conn:
        if conn is not None:
            found["interlock.db (free)"] = free = Store(home).database.free_bytes(conn)
            found["interlock.db"] -= free
    return {part: size for part, size in sorted(found.items(), key=lambda item: -item[1]) if size > 0}


def _size(path: Path) -> int:
    if not path.is_dir():
        return path.stat().st_size if path.exists() else 0
    return sum(file.lstat().st_size for file in path.rglob("*") if not file.is_dir())


def plan(home: Path, now: float, keep_days: int | None, max_gb: float | None) -> Plan:
    """What to delete: ended runs unchanged for `keep_days`, then the oldest until the rest takes at most `max_gb`.

    A run that an unfinished one was started from, or belongs to, stays.
    """
    rows = select(home, CANDIDATES)
    size, old = sum(sizes(home).values()), now - (keep_days or 0) * _DAY_S
    weights = _weights(home) if rows and (keep_days or max_gb) else {}
    due: list[Due] = []
    waiting: list[str] = []
    left = size
    for run, title, updated, ended, needed in rows:
        aged = keep_days is not None and updated < old
        large = max_gb is not None and left > max_gb * GB
        if not (aged or large):
            continue
        if not ended:
            waiting.append(run)
        elif not needed:
            why = f"older than {keep_days} days" if aged else f"over {max_gb:g} GB"
            due.append(Due(run, title, updated, weights.get(run, 0), why))
            left -= weights.get(run, 0)
    return Plan(due, size, waiting)


CANDIDATES = """
with unfinished as (select run, parent, subtask_of from runs where status not in ('done', 'failed', 'cancelled'))
select r.run, r.title, r.updated, r.status in ('done', 'failed', 'cancelled') as ended,
       r.run in (select parent from unfinished where parent is not null
                 union select subtask_of from unfinished where subtask_of is not null)
       or (r.subtask_of is not null and r.subtask_of in (select run from unfinished)) as needed
from runs r order by r.updated
"""


def _weights(home: Path) -> dict[str, int]:
    found: dict[str, int] = {}
    for table, size in _WEIGHED.items():
        owner = "thread_id" if table in ("checkpoints", "writes") else "run"
        for run, bytes_ in select(home, f"select {owner}, sum({size}) from {table} group by {owner}"):
            found[run] = found.get(run, 0) + (bytes_ or 0)
    return found


def prune(home: Path, planned: Plan) -> Iterator[Due]:
    """Delete the runs, each as it is yielded, then give their pages back. One that somebody drives now stays."""
    for one in planned.due:
        try:
            remove_run(home, one.run)
        except BusyError:
            continue
        yield one
    if planned.due:
        store = Store(home)
        with closing(store.connect("FULL")) as conn:
            store.database.shrink(conn)
