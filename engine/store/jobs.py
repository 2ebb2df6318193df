"""jobs: the jobs of a store in PostgreSQL, which are Procrastinate's, in the store's database.

What joins jobs with their runs can't be asked in two queries.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, NamedTuple

from interlock.state.errors import PASSING

DRIVE = "interlock.drive"
HELD = "held:"
"""Begins the queues that no worker serves (`rate_limits.py`)."""
LEVEL = 1_000_000
"""Places in the line of one priority."""
ASKED = "a.answer is null and a.superseded = 0 and a.interrupt is not null"
NOT_ASKED = f"not exists (select 1 from approvals a where a.run = r.run and {ASKED})"
PASSES = f"coalesce(cast(r.error as json) ->> 'type', 'died') in {PASSING}"


class Job(NamedTuple):
    run: str
    queue: str
    doing: bool
    driver: str
    """Host and process; empty: it waits."""
    deaths: int
    """Times that its process or worker died."""
    age_s: float
    user: str
    priority: int
    waits: str
    """For which limit; empty: for none."""


class PossiblyAbandonedRun(NamedTuple):
    """A run that a job drives, or that none does, with what changes while somebody really drives it."""

    run: str
    job: int | None
    queue: str
    worker: int | None
    """Who has the job."""
    stalled: bool
    """The job's worker gives no sign of life."""
    epoch: int
    beat: int
    held: int


class ServerTurn(NamedTuple):
    job: int
    queue: str
    user: str
    workflow: str
    is_taken: bool
    is_early: bool
    """Whether its time hasn't come."""


class Jobs:
    """The jobs of a store, in the open transaction of a connection. `stalled_s`: seconds without a worker's sign."""

    def __init__(self, conn: Any, raw: Any, make_app: Callable[[], Any]) -> None:
        """`conn`: the store's; `raw`: psycopg's. `make_app`: makes Procrastinate's program of the queue."""
        self._conn, self._raw, self._make_app = conn, raw, make_app

    def is_set_up(self) -> bool:
        """Whether the store has a queue."""
        return self._conn.execute_raw("select to_regclass('procrastinate_jobs') is not null").fetchone()[0]

    def read_database_time(self) -> datetime:
        """The time on the database's clock: those of hosts may differ."""
        return self._conn.execute_raw("select now()").fetchone()[0]

    def enqueue_job_unless_waiting(
        self,
        task: str,
        lock: str,
        queue: str,
        args: Mapping[str, Any],
        priority: int = 0,
        at: datetime | None = None,
    ) -> None:
        """Put a job that is due `at` a time, or at once; nothing if one with this lock waits: whoever takes that sees
        what changed.
        """
        from procrastinate.exceptions import AlreadyEnqueued

        options: Any = {"queue": queue, "priority": priority, "schedule_at": at, "connection": self._raw}
        job = self._make_app().configure_task(task, lock=lock, queueing_lock=lock, **options)
        with suppress(AlreadyEnqueued), self._raw.transaction():
            job.defer(**args)

    def has_unfinished_job(self, lock: str) -> bool:
        """Whether a job with this lock waits or is being done."""
        sql = "select 1 from procrastinate_jobs where lock = $1 and status in ('todo', 'doing') limit 1"
        return self._conn.execute_raw(sql, (lock,)).fetchone() is not None

    def find_waiting_job_due_time(self, lock: str) -> datetime | None:
        """When the job with this lock is taken; None: none waits."""
        found = self._conn.execute_raw(f"select scheduled_at {_OF_LOCK}", (lock,)).fetchone()
        return found[0] if found else None

    def remove_waiting_job(self, lock: str) -> None:
        """Remove the job with this lock that waits."""
        self._conn.execute_raw(f"delete {_OF_LOCK}", (lock,))

    def find_queue_priorities(
        self, run: str, user: str, queue: str, bottom: int, top: int
    ) -> tuple[int | None, int | None, int | None]:
        """Priorities above `bottom`, up to `top`: of the run while it is driven, of the first in the queue's line, and
        of the last of this user.
        """
        return self._conn.execute_raw(_PLACES, (run, user, queue, bottom, top)).fetchone()

    def cancel_jobs_of_run(self, run: str, *, only_server_turns: bool) -> bool | None:
        """Remove the run's job that waits, and ask whoever drives it to stop; returns whether one does.

        None: there was no job. `only_server_turns`: leave those of workers.
        """
        found = self._conn.execute_raw(
            f"{_STOPPABLE} {_TURNS if only_server_turns else ''}", (run,)
        ).fetchall()
        for job, _ in found:
            self._make_app().job_manager.cancel_job_by_id(job, abort=True, connection=self._raw)
        return any(doing for _, doing in found) if found else None

    def is_stop_requested(self, run: str) -> bool:
        sql = "select abort_requested from procrastinate_jobs where lock = $1 and status = 'doing'"
        return any(asked for (asked,) in self._conn.execute_raw(sql, (run,)))

    def requeue_or_end_running_job(self, job: int, run: str) -> None:
        """Let another worker take a job that is being done; end it if a newer one of the run waits."""
        # A worker may die after it put a run back and before its job's end: then the newer job counts.
        newer = self._conn.execute_raw(f"select 1 {_OF_LOCK}", (run,)).fetchone()
        end = "finish_job_v1(id, 'failed', true)" if newer else "retry_job_v2(id, now(), null, null, null)"
        # Only while it is being done: another worker's sweep may have been quicker.
        sql = f"select procrastinate_{end} from procrastinate_jobs where id = $1 and status = 'doing'"
        self._conn.execute_raw(sql, (job,)).fetchall()

    def list_possibly_abandoned_runs(self, stalled_s: float) -> list[PossiblyAbandonedRun]:
        """Runs of workers that may be abandoned."""
        return [PossiblyAbandonedRun(*row) for row in self._conn.execute_raw(_UNSURE, (stalled_s,))]

    def remove_abandoned_jobs(self, task: str, stalled_s: float) -> list[dict[str, Any]]:
        """Remove the jobs of a task whose worker is gone; returns the arguments of each."""
        return [args for (args,) in self._conn.execute_raw(_ABANDONED, (task, stalled_s))]

    def read_worker_heartbeat_ages(self) -> dict[int, float]:
        """Workers with the seconds since their last sign of life."""
        return dict(self._conn.execute_raw(_WORKERS).fetchall())

    def list_drive_jobs(self) -> list[Job]:
        return [Job(*facts, waits=_awaited_limit(error)) for *facts, error in self._conn.execute_raw(_JOBS)]

    def list_queues_and_waits_of_unserved_runs(
        self, runs: Sequence[str], stalled_s: float
    ) -> list[tuple[str, float]]:
        """Queue and seconds of waiting of each of these runs that could go on, if no worker gives a sign of life."""
        return self._conn.execute_raw(_UNSERVED, ([*runs], stalled_s)).fetchall()

    def read_connection_count_and_limit(self) -> tuple[int, int]:
        """Connections to the store's server, of everybody who uses it, and how many it takes."""
        return self._conn.execute_raw(_CONNECTIONS).fetchone()

    def count_admitted_jobs(self, kind: str, name: str, except_job: int = 0) -> int:
        """The number of admitted jobs of a user, workflow or model, but this one."""
        return self._conn.execute_raw(_DRIVEN, (kind, name, except_job)).fetchone()[0]

    def mark_admitted(self, job: int) -> None:
        """Let a job count as driven."""
        self._conn.execute_raw(f"update procrastinate_jobs set {_ADMITTED} where id = $1", (job,))

    def unmark_admitted(self, job: int) -> bool:
        """Let a job count no more; returns whether it did."""
        return self._conn.execute_raw(_END_ADMITTED, (job,)).rowcount > 0

    def move_to_held_queue(self, job: int, queue: str) -> None:
        """Move a job to a queue that no worker serves."""
        self._conn.execute_raw("update procrastinate_jobs set queue_name = $2 where id = $1", (job, queue))

    def list_held_queues(self) -> list[str]:
        """Queues that no worker serves, and in which jobs wait."""
        return [queue for (queue,) in self._conn.execute_raw(_HELD)]

    def release_jobs_of_queue(self, held_queue: str, limit: int | None) -> list[str]:
        """Let the first jobs of a held queue be taken, at most `limit`; returns their runs."""
        return [run for (run,) in self._conn.execute_raw(_RELEASED, (held_queue, limit))]

    def make_limit_delayed_jobs_due(self) -> None:
        """Let every job that waits for a limit be taken now."""
        self._conn.execute_raw(_HURRIED)

    def find_server_turn(self, run: str) -> ServerTurn | None:
        found = self._conn.execute_raw(
            f"select {_TURN} from procrastinate_jobs where {_OF_RUN} {_TURNS}", (run,)
        )
        return next((ServerTurn(*row) for row in found), None)

    def mark_turn_taken(self, job: int) -> None:
        """Take a turn: it counts as driven, and no worker takes it."""
        sql = f"update procrastinate_jobs set status = 'doing', {_ADMITTED} where id = $1"
        self._conn.execute_raw(sql, (job,))

    def remove_server_turn(self, run: str) -> bool:
        """Remove the run's turn; returns whether there was one."""
        sql = f"delete from procrastinate_jobs where {_OF_RUN} {_TURNS}"
        return self._conn.execute_raw(sql, (run,)).rowcount > 0

    def list_runs_of_server(self, server: str) -> list[str]:
        """Runs whose turns a server has or waits for."""
        return [run for (run,) in self._conn.execute_raw(_OF_SERVER, (server,))]


def _awaited_limit(error: str | None) -> str:
    """The limit that a run with this error waits for."""
    found: dict[str, str] = json.loads(error) if error else {}
    return found["of"] if found.get("type") == "limit" else ""


_OF_LOCK = "from procrastinate_jobs where queueing_lock = $1 and status = 'todo'"
_LINE = (
    "from procrastinate_jobs where status = 'todo' and queue_name = $3 and priority > $4 and priority <= $5"
)
_PLACES = f"""
select (select priority from procrastinate_jobs where lock = $1 and status = 'doing'),
       (select max(priority) {_LINE}), (select min(priority) {_LINE} and args ->> 'user' = $2)
"""
_STOPPABLE = (
    "select id, status = 'doing' from procrastinate_jobs j where lock = $1 and status in ('todo', 'doing')"
)
_TURNS = "and args ->> 'server' is not null"
_OF_RUN = "(queueing_lock = $1 and status = 'todo' or lock = $1 and status = 'doing')"
_TURN = (
    "id, queue_name, args ->> 'user', args ->> 'workflow', status = 'doing', "
    "coalesce(scheduled_at > now(), false)"
)
_STALLED = (
    "coalesce(w.id is null and j.args ->> 'server' is null "
    "or w.last_heartbeat < now() - make_interval(secs => cast($1 as double precision)), false)"
)
_SIGNS = "coalesce(l.epoch, 0), coalesce(l.beat, 0), coalesce(l.held, 0)"
# Those with a job; those without one that wait for nobody, of whom only indexes are read; and those that are over,
# whose worker died before it delivered what they changed.
_UNSURE = f"""
with loose as materialized (
    select r.run from runs r where r.queue is not null and r.status = 'open' and {NOT_ASKED} and not exists (
        select 1 from procrastinate_jobs t where t.lock = r.run and t.status in ('todo', 'doing'))
)
select r.run, j.id, r.queue, j.worker_id, {_STALLED}, {_SIGNS}
from procrastinate_jobs j join runs r on r.run = j.lock and r.status = 'open'
    and (r.queue is not null or j.args ->> 'server' is not null)
left join procrastinate_workers w on w.id = j.worker_id left join lease l on l.run = r.run
where j.status = 'doing'
union all
select r.run, null, r.queue, null, false, {_SIGNS}
from loose o cross join lateral (select run, queue, error from runs where run = o.run limit 1) r
left join lease l on l.run = r.run where {PASSES}
union all
select r.run, j.id, r.queue, j.worker_id, true, 0, 0, 0
from procrastinate_jobs j join runs r on r.run = j.lock and r.status <> 'open'
left join procrastinate_workers w on w.id = j.worker_id
where j.status = 'doing' and ({_STALLED})
"""
_ABANDONED = (
    "delete from procrastinate_jobs j where j.status = 'doing' and j.task_name = $1 and not exists "
    "(select 1 from procrastinate_workers w where w.id = j.worker_id "
    "and w.last_heartbeat >= now() - make_interval(secs => $2)) returning args"
)
_WORKERS = """
select id, cast(extract(epoch from now() - last_heartbeat) as double precision)
from procrastinate_workers order by id
"""
_AGE = (
    "cast(extract(epoch from now() - (select min(e.at) from procrastinate_events e where e.job_id = j.id)) "
    "as double precision)"
)
_JOBS = f"""
select j.lock, coalesce(r.queue, j.queue_name), j.status = 'doing', coalesce(l.host || ':' || cast(l.pid as text), ''),
       j.attempts + coalesce(cast(j.args ->> 'deaths' as integer), 0),
       {_AGE},
       coalesce(j.args ->> 'user', ''), cast(ceil(cast(j.priority as double precision) / {LEVEL}) as integer),
       case when j.status = 'todo' then r.error end
from procrastinate_jobs j left join lease l on l.run = j.lock and l.held = 1 left join runs r on r.run = j.lock
where j.status in ('todo', 'doing') and j.task_name = '{DRIVE}' order by j.status = 'todo', j.priority desc, j.id
"""
_UNSERVED = f"""
select j.queue_name, {_AGE} from procrastinate_jobs j
where j.status = 'todo' and j.queueing_lock = any($1) and j.queue_name not like '{HELD}%' and not exists (
    select 1 from procrastinate_workers
    where last_heartbeat > now() - make_interval(secs => cast($2 as double precision)))
"""
_CONNECTIONS = (
    "select (select count(*) from pg_stat_activity where datname is not null), "
    "cast(current_setting('max_connections') as integer) "
    "- cast(current_setting('superuser_reserved_connections') as integer)"
)
# A server may end without giving a turn back: it counts while somebody drives the run, or is about to.
_DRIVEN = """
select count(*) from procrastinate_jobs j
where status = 'doing' and args ->> 'admitted' is not null and args ->> cast($1 as text) = $2 and id <> $3 and (
    args ->> 'server' is null or cast(args ->> 'admitted' as double precision) > extract(epoch from now()) - 60
    or exists (select 1 from lease l where l.run = j.lock and l.held = 1))
"""
_NOW = "jsonb_build_object('admitted', extract(epoch from now()))"
_ADMITTED = f"args = args || {_NOW}"
_HELD = (
    f"select distinct queue_name from procrastinate_jobs where status = 'todo' and queue_name like '{HELD}%'"
)
# The turn of a server is taken with that: nobody else fetches it.
_RELEASED = f"""
update procrastinate_jobs j
set queue_name = coalesce(j.args ->> 'server', (select r.queue from runs r where r.run = j.lock), j.queue_name),
    status = case when j.args ->> 'server' is null then j.status else 'doing' end,
    args = case when j.args ->> 'server' is null then j.args else j.args || {_NOW} end
where j.id in (
    select id from procrastinate_jobs where status = 'todo' and queue_name = $1 order by priority desc, id limit $2)
returning j.lock
"""
_HURRIED = (
    "update procrastinate_jobs set scheduled_at = now() "
    "where status = 'todo' and scheduled_at > now() and args ->> 'waits' is not null"
)
_END_ADMITTED = (
    "update procrastinate_jobs set args = args - 'admitted' where id = $1 and args ->> 'admitted' is not null"
)
_OF_SERVER = (
    "select lock from procrastinate_jobs where args ->> 'server' = $1 and status in ('todo', 'doing')"
)
