"""admission: which job may drive now: how many runs of a user or a workflow are driven at once, over all workers.

A job that must wait for another run stands in a queue that no worker serves, until a run ends. A turn is a job that no
worker takes: of a run that a server drives itself, whose program waits for what comes. It waits for limits as any job
does, and counts while it is `doing`.
"""

import json
import os
from collections.abc import Collection
from typing import Any

from interlock.engine.store import note_error
from interlock.engine.store.connection import Connection
from interlock.engine.store.queue import (
    DRIVE,
    HELD,
    Submitted,
    has_queue,
    in_seconds,
    is_due,
    priority_and_steps,
    put_job,
    submitted,
)
from interlock.engine.store.rate_limits import (
    EACH,
    Limit,
    Wait,
    applying,
    total,
    used,
    wait_for,
    wait_for_runs,
)


def admit(conn: Connection, job: int, run: str, deaths: int, model: str) -> str:
    """Inside a transaction: let a job drive its run, or put the run back until a limit has room.

    Returns what it waits for; empty: it drives. `model`: whose limit the run waited for; empty: for none.
    """
    whose = submitted(conn, run)
    names = {"user": whose.user, "workflow": whose.workflow, **({"model": model} if model else {})}
    limits = applying(conn, names)
    if not is_due(conn, run):
        return ""
    if wait := full_for(conn, limits, job):
        put_back(conn, run, whose, wait, deaths, model)
        return wait.why
    conn.jobs.admit(job)
    return ""


def full_for(conn: Connection, limits: list[Limit], job: int) -> Wait | None:
    """What a job must wait for."""
    full = (
        one
        for one in limits
        if one.runs is not None and conn.jobs.count_driven(one.kind, one.name, job) >= one.runs
    )
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
    """Inside a transaction: the run, which may have no work left but a prompt, waits for no limit any more."""
    row = conn.execute("select error from runs where run = $1", (run,)).fetchone()
    if row and row[0] and json.loads(row[0])["type"] == "limit":
        note_error(conn, run, None)


def leave(conn: Connection, job: int) -> None:
    """Inside a transaction: what the job drove is driven no more; whoever waited for that may go on."""
    if conn.jobs.end_admitted(job):
        release(conn)


def release(conn: Connection) -> None:
    """Inside a transaction: let workers take the jobs that waited for runs to end, as far as there is room."""
    for held in conn.jobs.held_queues():
        kind, _, name = held.removeprefix(HELD).partition(" ")
        limit = next(iter(applying(conn, {kind: name})), None)
        room = (
            None
            if limit is None or limit.runs is None
            else max(0, limit.runs - conn.jobs.count_driven(limit.kind, limit.name))
        )
        for run in conn.jobs.release(held, room):
            note_error(conn, run, None)


def look_again(conn: Connection) -> None:
    """Inside a transaction, after a change of limits: let every job that waits for one look whether it must."""
    release(conn)
    conn.jobs.hurry()


def used_of(conn: Connection, limit: Limit) -> dict[str, float]:
    """What is used now of each figure that is limited."""
    if limit.name == EACH:
        return {}
    use = used(conn, [limit])
    minute, day, month = (use.get((limit.kind, limit.name, p), []) for p in ("minute", "day", "month"))
    found: dict[str, float] = {
        "runs": conn.jobs.count_driven(limit.kind, limit.name),
        "requests": total(one.requests for one in minute),
        "tokens": total(one.tokens for one in minute),
        "usd_per_day": total(one.usd for one in day),
        "usd_per_month": total(one.usd for one in month),
    }
    return {name: figure for name, figure in found.items() if getattr(limit, name) is not None}


def server_queue() -> str:
    """Where the turns of this host's servers stand."""
    return f"server:{os.uname().nodename}"


def put_turn(conn: Connection, run: str, whose: Submitted, after_s: float | None = None) -> bool:
    """Inside a transaction: line up; nothing changes if the run stands there already.

    `whose`: of a run that is to come, or keeps nobody. `after_s`: seconds until the limit that stopped it has room.
    False: the store has no queue, and so no limits.
    """
    if not has_queue(conn):
        return False
    if conn.jobs.turn(run):
        return True
    if conn.execute("select 1 from runs where run = $1", (run,)).fetchone():
        kept = submitted(conn, run)
        whose = kept if kept.user else whose
    server = server_queue()
    priority, _ = priority_and_steps(conn, run, whose, server)
    args: dict[str, Any] = {"run": run, "user": whose.user, "workflow": whose.workflow, "server": server}
    at = None
    if after_s is not None:
        args |= {"waits": 1}  # a change of limits lets it look at once
        at = in_seconds(conn, after_s)
    conn.jobs.put(DRIVE, run, server, args, priority, at)
    return True


def take_turn(conn: Connection, run: str, model: str) -> str | None:
    """Inside a transaction: let the run be driven; returns what it waits for; empty: for nothing.

    None: somebody cancelled the run. `model`: whose limit stopped it before.
    """
    turn = conn.jobs.turn(run)
    if turn is None:
        return None
    if turn.is_taken:
        return ""
    if turn.is_early:
        return "The limit that stopped it has no room yet."
    names = {"user": turn.user, "workflow": turn.workflow, **({"model": model} if model else {})}
    if wait := full_for(conn, applying(conn, names), turn.job):
        if wait.seconds is None and not turn.queue.startswith(HELD):
            conn.jobs.hold(turn.job, f"{HELD}{wait.whose}")
        _note(conn, run, wait)
        return wait.why
    if turn.queue.startswith(HELD):
        release(conn)  # takes the turns of those who are first in line
        now = conn.jobs.turn(run)
        return "" if now and now.is_taken else "Others are first in line."
    conn.jobs.take_turn(turn.job)
    note_error(conn, run, None)
    return ""


def _note(conn: Connection, run: str, wait: Wait) -> None:
    """What the run waits for, once: every look would be a change."""
    kept = conn.execute("select error from runs where run = $1", (run,)).fetchone()
    if kept and (not kept[0] or json.loads(kept[0]) != wait.error):
        note_error(conn, run, wait.error)


def leave_turn(conn: Connection, run: str) -> None:
    """Inside a transaction: whoever waited for that may go on."""
    if has_queue(conn) and conn.jobs.end_turn(run):
        release(conn)


def leave_other_turns(conn: Connection, runs: Collection[str]) -> None:
    """Inside a transaction: give back what this host's servers left, except the turns of these runs."""
    for run in conn.jobs.runs_of_server(server_queue()) if has_queue(conn) else ():
        if run not in runs:
            leave_turn(conn, run)


def stands(conn: Connection, run: str) -> bool:
    return has_queue(conn) and conn.jobs.has(run)


def is_stopped(conn: Connection, run: str) -> bool:
    """Whether somebody asked for the end of a run that a server drives."""
    return has_queue(conn) and conn.jobs.is_asked_to_stop(run)
