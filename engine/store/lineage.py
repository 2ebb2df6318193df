"""lineage: which run belongs to which: tasks and subtasks, a plan and what carries it out, forks."""

from pathlib import Path

from interlock.engine.store import select
from interlock.engine.store.connection import Connection

IS_SUBTASK = "c.subtask_of = c.parent"
"""For a run `c`. A fork has a parent too, and is `subtask_of` what the run was that it was forked from."""
RELATED = """
with recursive above (run, parent) as (
    select run, parent from runs where run = ?
    union select r.run, r.parent from runs r join above on r.run = above.parent
), related (run) as (
    select run from above union select r.run from runs r join related on r.parent = related.run
) """
"""Runs among which no number names two requests: a task and its subtasks, a plan and what carries it out, forks."""
_BELOW = f"""
select c.run from runs c join runs p on p.run = c.parent
where c.parent = ? and {IS_SUBTASK} and p.status = 'open'
and c.status not in ('done', 'cancelled') order by c.created desc limit 1
"""
_ABOVE = f"""
select p.run from runs c join runs p on p.run = c.parent
where c.run = ? and {IS_SUBTASK} and p.status = 'open'
"""
_OVER = ("done", "cancelled")
"""Statuses of a subtask after which its parent goes on. A failed one is retried first."""


def deepest(home: Path, run: str) -> str:
    """The innermost subtask a task is waiting for; the run itself if there is none."""
    while rows := select(home, _BELOW, run):
        run = rows[0]["run"]
    return run


def above(home: Path, run: str) -> str | None:
    """The task waiting for this one."""
    rows = select(home, _ABOVE, run)
    return rows[0]["run"] if rows else None


def topmost(home: Path, run: str) -> str:
    """The outermost task waiting for this run; the run itself if there is none."""
    while parent := above(home, run):
        run = parent
    return run


def with_subtasks(conn: Connection, run: str) -> list[str]:
    """The run and its subtasks, recursively."""
    found = [run]
    for one in found:
        rows = conn.execute(f"select c.run from runs c where c.parent = ? and {IS_SUBTASK}", (one,))
        found += [row[0] for row in rows]
    return found


_REACHED = """
with recursive reached (id, parent, run) as (
    select id, parent, run from chain where run = :run
    union select c.id, c.parent, c.run from chain c join model_calls m on c.id = m.record where m.run = :run
    union select c.id, c.parent, c.run from chain c join reached r on c.id = r.parent
) select distinct run from reached
"""


def related(conn: Connection, run: str) -> list[str]:
    """The other runs that share records with this one: those it came from, removed ones too, and their offspring."""
    rows = conn.execute(f"{RELATED} select run from related", (run,)).fetchall()
    rows += conn.execute(_REACHED, {"run": run}).fetchall()
    return [one for one in dict.fromkeys(one for (one,) in rows) if one != run]


def first_task(conn: Connection, run: str) -> str:
    """The user-started run this one is a subtask of, at any depth; else the run itself."""
    higher = f"select p.run from runs c join runs p on p.run = c.parent where c.run = ? and {IS_SUBTASK}"
    while row := conn.execute(higher, (run,)).fetchone():
        run = row[0]
    return run


def how_it_ended(conn: Connection, run: str) -> str | None:
    """A subtask's status if its parent can go on: `done`, `cancelled`, or `removed`; else None."""
    row = conn.execute("select status from runs where run = ?", (run,)).fetchone()
    return "removed" if row is None else row[0] if row[0] in _OVER else None
