"""queue: a job says "drive this run until it parks or ends". It is put in the transaction that gives a reason to.

How a database keeps jobs is its queue's business (`jobs.py`). The truth about a run is its row, never
its job's status (`docs/internals.md#a-run-and-its-job`).
"""

import json
import os
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple, cast
from zoneinfo import ZoneInfo

from interlock.engine.store.connection import Connection
from interlock.engine.store.jobs import (
    ASKED,
    LEVEL,
    NOT_ASKED,
    Job,
    PossiblyAbandonedRun,
    WakeKind,
    passes_sql,
)
from interlock.engine.store.leases import revoke_lease
from interlock.engine.store.runs import (
    IS_SUBTASK,
    find_root_task,
    list_run_and_subtasks,
    read_repository_option,
    set_run_error,
    stopped_run_error,
)
from interlock.state.errors import StoreError, UserError

_OF_HOST = "host:"


class Submission(NamedTuple):
    """Who started a run that workers drive, and how."""

    user: str
    priority: int
    workflow: str
    queue: str


def host_queue_name() -> str:
    """The queue of runs whose files are on this host."""
    return f"{_OF_HOST}{os.uname().nodename}"


def enqueue_run(
    conn: Connection,
    run: str,
    queue: str,
    after_s: int = 0,
    deaths: int = 0,
    model: str | None = None,
    why: WakeKind = "run",
) -> None:
    """Inside a transaction: let a worker of this queue drive the run; nothing if its job waits already.

    `after_s`: not sooner, on the database's clock: those of hosts may differ. `deaths`: of the run's process, since it
    last got further. `model`: for a run that waits for a limit, whose; empty: not for a model's. Raises `StoreError` if
    the store has no queue.
    """
    require_queue(conn)
    at = database_time_after(conn, after_s) if after_s else None
    whose = read_submission(conn, run)
    priority, steps = compute_priority_and_steps(conn, run, whose, queue)
    args = {"run": run, "steps": steps, "deaths": deaths}
    args |= {"user": whose.user, "workflow": whose.workflow}
    conn.jobs.enqueue_job_unless_waiting(
        why if model is None else "limit",
        run,
        queue,
        args | ({} if model is None else {"model": model, "waits": 1}),
        priority,
        at,
    )


def require_queue(conn: Connection | None) -> Connection:
    """Raises `StoreError` if there is no store yet, or it has no queue."""
    if conn is None or not has_queue(conn):
        raise StoreError("The store has no queue yet. Set it up with: interlock fleet init")
    return conn


def has_queue(conn: Connection) -> bool:
    return conn.jobs.is_set_up()


def database_time_after(conn: Connection, after_s: float) -> datetime:
    """That time, on the database's clock."""
    return conn.jobs.read_database_time() + timedelta(seconds=after_s)


def read_submission(conn: Connection, run: str) -> Submission:
    columns = "select workflow, queue, options from runs where run = $1"
    workflow, queue, options = conn.execute(columns, (run,)).fetchone()
    kept: dict[str, Any] = json.loads(options).get("submitted") or {}
    return Submission(kept.get("user", ""), kept.get("priority", 0), workflow, queue or "")


def compute_priority_and_steps(
    conn: Connection, run: str, submission: Submission, queue: str
) -> tuple[int, int]:
    """A place in the line of the run's priority, and how far the run is.

    Users take turns, each in the order of their own runs. Nobody who comes later gets in before the front of the line.
    A run that is put back keeps its place; one that has begun and has none goes first.
    """
    top = submission.priority * LEVEL
    kept, front, last = conn.jobs.find_queue_priorities(run, submission.user, queue, top - LEVEL, top)
    steps = _count_steps(conn, run)
    if kept is not None:
        return kept, steps
    if front is None or steps:
        return top if front is None else min(front + 1, top), steps
    return front if last is None else max(min(front, last - 1), top - LEVEL + 1), steps


def enqueue_run_if_worker_driven(
    conn: Connection, run: str, after_s: int = 0, *, if_due: bool = False, deaths: int = 0
) -> bool:
    """Inside a transaction: put a job for the run if it is one that workers drive; returns whether it is.

    `if_due`: not if it was cancelled or waits for a person. One that is done may have to be delivered.
    """
    due = f"r.status <> 'cancelled' and {_may_go_on_sql(conn)}" if if_due else "true"
    row = conn.execute(f"select r.queue from runs r where r.run = $1 and {due}", (run,)).fetchone()
    if row and row[0]:
        if not if_due:
            set_run_error(conn, run, None)
            _restore_status_of_failed_run(conn, run)
        enqueue_run(conn, run, row[0], after_s, deaths)
    return bool(row and row[0])


def assign_family_to_queue(conn: Connection, run: str, queue: str) -> None:
    """Inside a transaction: from now on workers of this queue drive the run, its subtasks and the tasks above it."""
    for one in list_run_and_subtasks(conn, find_root_task(conn, run)):
        conn.update("runs", {"queue": queue}, {"run": one})


def withdraw_run_from_workers(conn: Connection, run: str) -> bool | None:
    """Remove the run's waiting job, and ask a worker that drives it to stop; returns whether one does.

    None: there was no job to take back.

    A worker that has a run that is done delivers what it changed, and isn't stopped.
    """
    mark_due_run_stopped(conn, run, "cancelled")
    is_done = conn.execute("select 1 from runs where run = $1 and status = 'done'", (run,)).fetchone()
    return conn.jobs.cancel_jobs_of_run(run, only_server_turns=is_done is not None)


def requeue_abandoned_run(conn: Connection, found: PossiblyAbandonedRun) -> None:
    """Inside a transaction: put an abandoned run back."""
    if found.job is None:
        enqueue_run(conn, found.run, found.queue)
        return
    conn.jobs.requeue_or_end_running_job(found.job, found.run)
    if found.held and not is_run_due(conn, found.run):
        for one in list_run_and_subtasks(conn, find_root_task(conn, found.run)):
            revoke_lease(conn, one)  # it was cancelled, and nobody else would end it: its host is gone


class Delivery(NamedTuple):
    """What becomes of the changes of a run on a repository."""

    under_way: bool = False
    """A worker still has a job for the run, as it has until it delivered."""
    pushed_by: str = ""
    """The run that pushes its branch; empty: none does."""
    kept_back: Sequence[str] = ()
    """Files that it doesn't push, as they may hold keys."""
    left_behind: Sequence[str] = ()
    """Files that nothing delivers: git ignores them, or they are private or over 20 MB."""


def read_delivery(conn: Connection, run: str) -> Delivery:
    kept = read_repository_option(conn, run)
    kept_back = [path for path in kept.get("kept_back", "").split("\n") if path]
    left: list[str] = json.loads(kept.get("left_behind", "[]"))
    return Delivery(conn.jobs.has_unfinished_job(run), kept.get("pushed_by", ""), kept_back, left)


def has_run_progressed(conn: Connection, run: str, steps_before: int) -> bool:
    """Whether the run, with its subtasks, is further than it was when it had taken so many steps."""
    return _count_steps(conn, run) > steps_before


def _count_steps(conn: Connection, run: str) -> int:
    return conn.execute(_STEPS, (run,)).fetchone()[0]


def is_run_due(conn: Connection, run: str) -> bool:
    """Whether it isn't over, and waits for no person."""
    due = f"r.status not in ('done', 'cancelled') and {_may_go_on_sql(conn)}"
    return bool(conn.execute(f"select 1 from runs r where r.run = $1 and {due}", (run,)).fetchone())


def can_run_continue(conn: Connection, run: str) -> bool:
    """Whether nobody stopped it, and it waits for no person; it may be done, and not delivered yet."""
    sql = f"select 1 from runs r where r.run = $1 and {_may_go_on_sql(conn)}"
    return bool(conn.execute(sql, (run,)).fetchone())


def _may_go_on_sql(conn: Connection) -> str:
    return f"{passes_sql(conn.dialect.json_field)} and {NOT_ASKED}"


def mark_due_run_stopped(conn: Connection, run: str, kind: str) -> None:
    """Inside a transaction: leave a run that has work left to whoever resumes it."""
    if is_run_due(conn, run):
        set_run_error(conn, run, stopped_run_error(kind, run))


def mark_run_and_root_task_stopped(conn: Connection, run: str, kind: str) -> None:
    """Inside a transaction: no worker goes on with a run, or the task above it, that was stopped elsewhere."""
    for one in {run, find_root_task(conn, run)}:
        if read_submission(conn, one).queue:
            mark_due_run_stopped(conn, one, kind)


def read_death_message(conn: Connection, run: str) -> str:
    """How the run's process died; empty: unknown."""
    row = conn.execute("select error from runs where run = $1", (run,)).fetchone()
    error: dict[str, str] = json.loads(row[0]) if row and row[0] else {}
    return str(error["message"]) if error.get("type") == "died" else ""


def mark_run_failed_and_revoke_lease(conn: Connection, run: str, error_type: str, why: str) -> None:
    """Inside a transaction: end a run that can't be driven; a person may resume it."""
    set_run_error(conn, run, {"type": error_type, "message": why})
    # Its outcome still says how far its graph is: `_restore_status_of_failed_run` goes by that.
    conn.update("runs", {"status": "failed"}, {"run": run})
    revoke_lease(conn, run)


def _restore_status_of_failed_run(conn: Connection, run: str) -> None:
    """Inside a transaction: a run that was given up is to be driven, or delivered, again."""
    for outcome, status in (("done", "done"), ("", "open")):
        conn.update("runs", {"status": status}, {"run": run, "status": "failed", "outcome": outcome})


def read_workers_jobs_and_request_count(conn: Connection) -> tuple[dict[int, float], list[Job], int]:
    """Workers with the seconds since their last heartbeat, jobs, and the number of open requests."""
    return (
        conn.jobs.read_worker_heartbeat_ages(),
        conn.jobs.list_drive_jobs(),
        conn.execute(_REQUESTS).fetchone()[0],
    )


_STEPS = f"""
with recursive family (run) as (
    select run from runs where run = $1
    union select c.run from runs c join family f on c.parent = f.run where {IS_SUBTASK}
)
select cast(sum((select count(*) from step_rows s where s.run = f.run)) as bigint) from family f
"""
_REQUESTS = (
    "select count(*) from approvals a join runs r on r.run = a.run "
    f"where {ASKED} and r.status not in ('done', 'failed', 'cancelled')"
)
_DEATHS = 3
_AGAIN_S = 2
_EXPECTED = "Expected minute hour day month weekday, in quotes: '30 2 * * 1-5'; or @hourly, @daily, @weekly."


class Schedule(NamedTuple):
    name: str
    cron: str
    zone: str
    workflow: str
    title: str
    workspace: str
    queue: str
    options: Mapping[str, Any]
    input: Mapping[str, Any]
    run: str = ""
    said: str = ""

    @property
    def user(self) -> str:
        return self.options["submitted"]["user"]

    def next_time_after(self, moment: datetime) -> datetime:
        """The next time."""
        return next_cron_time(self.cron, self.zone, moment)


def next_cron_time(cron: str, zone: str, moment: datetime) -> datetime:
    """The first time after this moment; one that a clock shows twice in autumn counts once, unless every hour does.

    Raises `UserError` for a line or a time zone that can't be used.
    """
    from croniter import CroniterBadDateError, croniter  # only for who has a schedule

    try:
        there = ZoneInfo(zone)
    except (ValueError, OSError, LookupError) as error:
        raise UserError(f"No time zone {zone!r}. Expected a name such as UTC or Europe/Berlin.") from error
    fields = cron.split()
    if not (len(fields) == 5 or (len(fields) == 1 and cron.startswith("@"))) or not croniter.is_valid(cron):
        raise UserError(f"{cron!r} isn't a cron line. {_EXPECTED}")
    every_hour = "*" in fields[1 % len(fields)] or croniter.expand(cron)[0][1] == ["*"]  # such as @hourly
    times: Any = croniter(cron, moment.astimezone(there))
    try:
        found = cast(datetime, times.get_next(datetime))
        while found.fold and not every_hour:
            found = cast(datetime, times.get_next(datetime))
    except CroniterBadDateError as error:
        raise UserError(f"The time of {cron!r} never comes. {_EXPECTED}") from error
    return found


def add_schedule(conn: Connection, schedule: Schedule) -> datetime:
    """Inside a transaction; returns its first time. Raises `UserError` if the name is taken."""
    if find_schedule(conn, schedule.name):
        raise UserError(
            f"There is a schedule {schedule.name!r} already. Remove it, or choose another --name."
        )
    row = {**schedule._asdict(), "options": json.dumps(schedule.options), "input": json.dumps(schedule.input)}
    conn.insert("schedules", row)
    return enqueue_schedule_start(conn, schedule)


def find_schedule(conn: Connection, name: str) -> Schedule | None:
    query = f"select {', '.join(Schedule._fields)} from schedules where name = $1"
    row = conn.execute(query, (name,)).fetchone()
    return _to_schedule(row) if row else None


def list_schedules_with_next_times(conn: Connection) -> list[tuple[Schedule, datetime | None]]:
    """Every schedule, with its next time; None: it is being started."""
    rows = conn.execute(f"select {', '.join(Schedule._fields)} from schedules order by name").fetchall()
    return [
        (found := _to_schedule(row), conn.jobs.find_waiting_job_due_time(_schedule_lock(found.name)))
        for row in rows
    ]


def _to_schedule(row: Any) -> Schedule:
    made = Schedule(*row)
    return made._replace(options=json.loads(row[7]), input=json.loads(row[8]))


def remove_schedule(conn: Connection, name: str) -> bool:
    """Inside a transaction; returns whether there was one. A run that it started goes on."""
    conn.jobs.remove_waiting_job(_schedule_lock(name))
    return conn.delete("schedules", {"name": name}).rowcount > 0


def enqueue_schedule_start(
    conn: Connection, schedule: Schedule, due: int | None = None, after_s: int = 0, deaths: int = 0
) -> datetime:
    """Inside a transaction: put the job for the next time, or for one that is due; returns when it is taken."""
    at = database_time_after(conn, after_s)
    at = schedule.next_time_after(at) if due is None else at
    args = {"schedule": schedule.name, "due": due or int(at.timestamp()), "deaths": deaths}
    conn.jobs.enqueue_job_unless_waiting(
        "schedule", _schedule_lock(schedule.name), schedule.queue, args, at=at
    )
    return at


def record_start_and_enqueue_next(conn: Connection, name: str, run: str, message: str) -> None:
    """Inside a transaction: keep what the time came to, and plan the next, unless the schedule was removed."""
    conn.update("schedules", {"run": run, "said": message}, {"name": name})
    if schedule := find_schedule(conn, name):
        enqueue_schedule_start(conn, schedule)


def retry_or_skip_schedule_start(conn: Connection, name: str, due: int, deaths: int) -> None:
    """Inside a transaction: try the time again, but not for ever."""
    schedule = find_schedule(conn, name)
    if schedule and deaths < _DEATHS:
        enqueue_schedule_start(conn, schedule, due, _AGAIN_S, deaths)
    elif schedule:
        record_start_and_enqueue_next(
            conn, name, schedule.run, f"The process that starts its runs died {deaths} times."
        )


def requeue_lost_schedule_starts(conn: Connection, stalled_s: float) -> None:
    """Inside a transaction: try again what workers that are gone were starting, and plan what has no job."""
    for job in conn.jobs.remove_abandoned_jobs("schedule", stalled_s):
        retry_or_skip_schedule_start(conn, job["schedule"], job["due"], 0)
    for schedule, _ in list_schedules_with_next_times(conn):
        if not conn.jobs.has_unfinished_job(_schedule_lock(schedule.name)):
            enqueue_schedule_start(conn, schedule)


def _schedule_lock(name: str) -> str:
    """The lock of the job that starts the runs of a schedule."""
    return f"schedule:{name}"
