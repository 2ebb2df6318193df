"""turns: the place in line of runs that a server drives itself, whose programs wait for what comes.

A turn is a job that no worker takes. It waits for limits as any job does, and counts while it is `doing`.
"""

import json
import os
from collections.abc import Collection
from datetime import timedelta
from typing import Any

from interlock.engine.store import note_error
from interlock.engine.store.admission import ADMITTED, full_for, release
from interlock.engine.store.connection import Connection
from interlock.engine.store.limits import Wait, applying
from interlock.engine.store.queue import DRIVE, HELD, Submitted, defer, priority_and_steps, submitted

_FOUND = (
    "select id, queue_name, args ->> 'user', args ->> 'workflow', status = 'doing', "
    "coalesce(scheduled_at > now(), false) from procrastinate_jobs where args ->> 'server' is not null "
    "and (queueing_lock = ? and status = 'todo' or lock = ? and status = 'doing')"
)
_LEFT = (
    "delete from procrastinate_jobs where args ->> 'server' is not null "
    "and (queueing_lock = ? and status = 'todo' or lock = ? and status = 'doing')"
)


def server_queue() -> str:
    """Where the turns of this host's servers stand."""
    return f"server:{os.uname().nodename}"


def put_turn(conn: Connection, run: str, whose: Submitted, after_s: float | None = None) -> bool:
    """Inside a transaction: line up; nothing changes if the run stands there already.

    `whose`: of a run that is to come, or keeps nobody. `after_s`: seconds until the limit that stopped it has room.
    False: the store has no queue, and so no limits.
    """
    if not _has_queue(conn):
        return False
    if conn.execute(_FOUND, (run, run)).fetchone():
        return True
    if conn.execute("select 1 from runs where run = ?", (run,)).fetchone():
        kept = submitted(conn, run)
        whose = kept if kept.user else whose
    server = server_queue()
    priority, _ = priority_and_steps(conn, run, whose, server)
    args: dict[str, Any] = {"run": run, "user": whose.user, "workflow": whose.workflow, "server": server}
    later: dict[str, Any] = {}
    if after_s is not None:
        args |= {"waits": 1}  # a change of limits lets it look at once
        (now,) = conn.execute("select now()").fetchone()
        later = {"schedule_at": now + timedelta(seconds=after_s)}
    defer(conn, DRIVE, run, server, args, priority=priority, **later)
    return True


def take_turn(conn: Connection, run: str, model: str) -> str | None:
    """Inside a transaction: let the run be driven; returns what it waits for; empty: for nothing.

    None: somebody cancelled the run. `model`: whose limit stopped it before.
    """
    found = conn.execute(_FOUND, (run, run)).fetchone()
    if found is None:
        return None
    job, queue, user, workflow, is_taken, is_early = found
    if is_taken:
        return ""
    if is_early:
        return "The limit that stopped it has no room yet."
    names = {"user": user, "workflow": workflow, **({"model": model} if model else {})}
    if wait := full_for(conn, applying(conn, names), job):
        if wait.seconds is None and not queue.startswith(HELD):
            held = f"{HELD}{wait.whose}"
            conn.execute("update procrastinate_jobs set queue_name = ? where id = ?", (held, job))
        _note(conn, run, wait)
        return wait.why
    if queue.startswith(HELD):
        release(conn)  # takes the turns of those who are first in line
        return "" if conn.execute(_FOUND, (run, run)).fetchone()[4] else "Others are first in line."
    conn.execute(f"update procrastinate_jobs set status = 'doing', {ADMITTED} where id = ?", (job,))
    note_error(conn, run, None)
    return ""


def _note(conn: Connection, run: str, wait: Wait) -> None:
    """What the run waits for, once: every look would be a change."""
    kept = conn.execute("select error from runs where run = ?", (run,)).fetchone()
    if kept and (not kept[0] or json.loads(kept[0]) != wait.error):
        note_error(conn, run, wait.error)


def leave_turn(conn: Connection, run: str) -> None:
    """Inside a transaction: whoever waited for that may go on."""
    if _has_queue(conn) and conn.execute(_LEFT, (run, run)).rowcount:
        release(conn)


def leave_other_turns(conn: Connection, runs: Collection[str]) -> None:
    """Inside a transaction: give back what this host's servers left, except the turns of these runs."""
    sql = "select lock from procrastinate_jobs where args ->> 'server' = ? and status in ('todo', 'doing')"
    for (run,) in conn.execute(sql, (server_queue(),)).fetchall() if _has_queue(conn) else ():
        if run not in runs:
            leave_turn(conn, run)


def stands(conn: Connection, run: str) -> bool:
    """Whether a run has a job, of a server or of workers, that waits or is done."""
    sql = "select 1 from procrastinate_jobs where lock = ? and status in ('todo', 'doing') limit 1"
    return _has_queue(conn) and conn.execute(sql, (run,)).fetchone() is not None


def is_stopped(conn: Connection, run: str) -> bool:
    """Whether somebody asked for the end of a run that a server drives."""
    sql = "select abort_requested from procrastinate_jobs where lock = ? and status = 'doing'"
    return _has_queue(conn) and bool((found := conn.execute(sql, (run,)).fetchone()) and found[0])


def _has_queue(conn: Connection) -> bool:
    return conn.execute("select to_regclass('procrastinate_jobs') is not null").fetchone()[0]
