"""admission: which job may drive now: how many runs of a user or a workflow are driven at once, over all workers.

A job that must wait for another run stands in a queue that no worker serves, until a run ends.
"""

import json

from interlock.engine.store import note_error
from interlock.engine.store.connection import Connection
from interlock.engine.store.limits import EACH, Limit, Wait, applying, used, wait_for, wait_for_runs
from interlock.engine.store.queue import HELD, Submitted, is_due, put_job, submitted

# A server may end without giving a turn (`turns.py`) back: it counts while somebody drives the run, or is about to.
_DRIVEN = """
select count(*) from procrastinate_jobs j
where status = 'doing' and args ->> 'admitted' is not null and args ->> cast(? as text) = ? and id <> ? and (
    args ->> 'server' is null or cast(args ->> 'admitted' as double precision) > extract(epoch from now()) - 60
    or exists (select 1 from lease l where l.run = j.lock and l.held = 1))
"""
_HELD = (
    f"select distinct queue_name from procrastinate_jobs where status = 'todo' and queue_name like '{HELD}%'"
)
_NOW = "jsonb_build_object('admitted', extract(epoch from now()))"
ADMITTED = f"args = args || {_NOW}"
# The turn of a server (`turns.py`) is taken with that: nobody else fetches it.
_RELEASED = f"""
update procrastinate_jobs j
set queue_name = coalesce(j.args ->> 'server', (select r.queue from runs r where r.run = j.lock), j.queue_name),
    status = case when j.args ->> 'server' is null then j.status else 'doing' end,
    args = case when j.args ->> 'server' is null then j.args else j.args || {_NOW} end
where j.id in (
    select id from procrastinate_jobs where status = 'todo' and queue_name = ? order by priority desc, id limit ?)
returning j.lock
"""


def admit(conn: Connection, job: int, run: str, deaths: int, model: str) -> str:
    """Inside a transaction: let a job drive its run, or put the run back until a limit has room.

    Returns what it waits for; empty: it drives. `model`: whose limit the run waited for; empty: for none.
    """
    whose = submitted(conn, run)
    names = {"user": whose.user, "workflow": whose.workflow, **({"model": model} if model else {})}
    limits = applying(conn, names)
    if not limits or not is_due(conn, run):
        return ""
    if wait := full_for(conn, limits, job):
        put_back(conn, run, whose, wait, deaths, model)
        return wait.why
    conn.execute(f"update procrastinate_jobs set {ADMITTED} where id = ?", (job,))
    return ""


def full_for(conn: Connection, limits: list[Limit], job: int) -> Wait | None:
    """What a job must wait for."""
    full = (one for one in limits if one.runs is not None and _driven(conn, one, job) >= one.runs)
    if first := next(full, None):
        return wait_for_runs(first)
    return wait_for(conn, limits) if limits else None


def put_back(
    conn: Connection, run: str, whose: Submitted, wait: Wait, deaths: int = 0, model: str = ""
) -> None:
    """Inside a transaction: let no worker take the run before the limit has room."""
    note_error(conn, run, wait.error)
    if wait.seconds is None:
        put_job(conn, run, f"{HELD}{wait.whose}", deaths=deaths, model=model)
    else:
        put_job(conn, run, whose.queue, after_s=int(wait.seconds) + 1, deaths=deaths, model=model)


def waits_no_more(conn: Connection, run: str) -> None:
    """Inside a transaction: the run, which may have no work left but a prompt, waits for no limit any more.

    Nor does a prompt whose server is gone wait for the next one.
    """
    waiting = "kind = 'prompt' and id = ? and body::json ->> 'status' = 'pending'"
    conn.execute(f"delete from served where {waiting}", (run,))
    row = conn.execute("select error from runs where run = ?", (run,)).fetchone()
    if row and row[0] and json.loads(row[0])["type"] == "limit":
        note_error(conn, run, None)


def leave(conn: Connection, job: int) -> None:
    """Inside a transaction: what the job drove is driven no more; whoever waited for that may go on."""
    left = "update procrastinate_jobs set args = args - 'admitted' where id = ? and args ->> 'admitted' is not null"
    if conn.execute(left, (job,)).rowcount:
        release(conn)


def release(conn: Connection) -> None:
    """Inside a transaction: let workers take the jobs that waited for runs to end, as far as there is room."""
    for (held,) in conn.execute(_HELD).fetchall():
        kind, _, name = held.removeprefix(HELD).partition(" ")
        limit = next(iter(applying(conn, {kind: name})), None)
        room = None if limit is None or limit.runs is None else max(0, limit.runs - _driven(conn, limit))
        for (run,) in conn.execute(_RELEASED, (held, room)).fetchall():
            note_error(conn, run, None)


def look_again(conn: Connection) -> None:
    """Inside a transaction, after a change of limits: let every job that waits for one look whether it must."""
    release(conn)
    conn.execute(
        "update procrastinate_jobs set scheduled_at = now() "
        "where status = 'todo' and scheduled_at > now() and args ->> 'waits' is not null"
    )


def used_of(conn: Connection, limit: Limit) -> dict[str, float]:
    """What is used now of each figure that is limited."""
    if limit.name == EACH:
        return {}
    use = used(conn, [limit])
    minute, day, month = (use[limit.kind, limit.name, period] for period in ("minute", "day", "month"))
    found: dict[str, float] = {"requests": minute.requests, "tokens": minute.tokens}
    found |= {"runs": _driven(conn, limit), "usd_per_day": day.usd, "usd_per_month": month.usd}
    return {name: figure for name, figure in found.items() if getattr(limit, name) is not None}


def _driven(conn: Connection, limit: Limit, but: int = 0) -> int:
    return conn.execute(_DRIVEN, (limit.kind, limit.name, but)).fetchone()[0]
