"""procrastinate_jobs: the queue of a store in PostgreSQL: Procrastinate's jobs, in the store's database.

What joins jobs with their runs can't be asked in two queries.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

from interlock.engine.store.jobs import (
    HELD,
    LEVEL,
    NOT_ASKED,
    Job,
    Jobs,
    PossiblyAbandonedRun,
    ServerTurn,
    WakeKind,
    awaited_limit,
    passes_sql,
)

DRIVE, START = "interlock.drive", "interlock.start"
TASKS: Mapping[WakeKind, str] = {"run": DRIVE, "decision": DRIVE, "limit": DRIVE, "schedule": START}
"""Procrastinate's task of each kind."""


class ProcrastinateJobs(Jobs):
    """Procrastinate's jobs, in the open transaction of a connection."""

    def __init__(self, conn: Any, raw: Any, make_app: Callable[[], Any]) -> None:
        """`conn`: the store's; `raw`: psycopg's. `make_app`: makes Procrastinate's program of the queue."""
        self._conn, self._raw, self._make_app = conn, raw, make_app

    def is_set_up(self) -> bool:
        return self._conn.execute_raw("select to_regclass('procrastinate_jobs') is not null").fetchone()[0]

    def read_database_time(self) -> datetime:
        return self._conn.execute_raw("select now()").fetchone()[0]

    def enqueue_job_unless_waiting(
        self,
        kind: WakeKind,
        key: str,
        queue: str,
        args: Mapping[str, Any],
        priority: int = 0,
        at: datetime | None = None,
    ) -> None:
        from procrastinate.exceptions import AlreadyEnqueued

        options: Any = {"queue": queue, "priority": priority, "schedule_at": at, "connection": self._raw}
        job = self._make_app().configure_task(TASKS[kind], lock=key, queueing_lock=key, **options)
        with suppress(AlreadyEnqueued), self._raw.transaction():
            job.defer(**args)

    def has_unfinished_job(self, key: str) -> bool:
        sql = "select 1 from procrastinate_jobs where lock = $1 and status in ('todo', 'doing') limit 1"
        return self._conn.execute_raw(sql, (key,)).fetchone() is not None

    def find_waiting_job_due_time(self, key: str) -> datetime | None:
        found = self._conn.execute_raw(f"select scheduled_at {_OF_LOCK}", (key,)).fetchone()
        return found[0] if found else None

    def remove_waiting_job(self, key: str) -> None:
        self._conn.execute_raw(f"delete {_OF_LOCK}", (key,))

    def find_queue_priorities(
        self, run: str, user: str, queue: str, bottom: int, top: int
    ) -> tuple[int | None, int | None, int | None]:
        return self._conn.execute_raw(_PLACES, (run, user, queue, bottom, top)).fetchone()

    def cancel_jobs_of_run(self, run: str, *, only_server_turns: bool) -> bool | None:
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
        # A worker may die after it put a run back and before its job's end: then the newer job counts.
        newer = self._conn.execute_raw(f"select 1 {_OF_LOCK}", (run,)).fetchone()
        end = "finish_job_v1(id, 'failed', true)" if newer else "retry_job_v2(id, now(), null, null, null)"
        # Only while it is being done: another worker's sweep may have been quicker.
        sql = f"select procrastinate_{end} from procrastinate_jobs where id = $1 and status = 'doing'"
        self._conn.execute_raw(sql, (job,)).fetchall()

    def list_possibly_abandoned_runs(self, stalled_s: float) -> list[PossiblyAbandonedRun]:
        return [PossiblyAbandonedRun(*row) for row in self._conn.execute_raw(_UNSURE, (stalled_s,))]

    def remove_abandoned_jobs(self, kind: WakeKind, stalled_s: float) -> list[dict[str, Any]]:
        return [args for (args,) in self._conn.execute_raw(_ABANDONED, (TASKS[kind], stalled_s))]

    def read_worker_heartbeat_ages(self) -> dict[int, float]:
        return dict(self._conn.execute_raw(_WORKERS).fetchall())

    def list_drive_jobs(self) -> list[Job]:
        return [Job(*facts, waits=awaited_limit(error)) for *facts, error in self._conn.execute_raw(_JOBS)]

    def list_queues_and_waits_of_unserved_runs(
        self, runs: Sequence[str], stalled_s: float
    ) -> list[tuple[str, float]]:
        return self._conn.execute_raw(_UNSERVED, ([*runs], stalled_s)).fetchall()

    def read_connection_count_and_limit(self) -> tuple[int, int]:
        return self._conn.execute_raw(_CONNECTIONS).fetchone()

    def count_admitted_jobs(self, kind: str, name: str, except_job: int = 0) -> int:
        return self._conn.execute_raw(_DRIVEN, (kind, name, except_job)).fetchone()[0]

    def mark_admitted(self, job: int) -> None:
        self._conn.execute_raw(f"update procrastinate_jobs set {_ADMITTED} where id = $1", (job,))

    def unmark_admitted(self, job: int) -> bool:
        return self._conn.execute_raw(_END_ADMITTED, (job,)).rowcount > 0

    def move_to_held_queue(self, job: int, queue: str) -> None:
        self._conn.execute_raw("update procrastinate_jobs set queue_name = $2 where id = $1", (job, queue))

    def list_held_queues(self) -> list[str]:
        return [queue for (queue,) in self._conn.execute_raw(_HELD)]

    def release_jobs_of_queue(self, held_queue: str, limit: int | None) -> list[str]:
        return [run for (run,) in self._conn.execute_raw(_RELEASED, (held_queue, limit))]

    def make_limit_delayed_jobs_due(self) -> None:
        self._conn.execute_raw(_HURRIED)

    def find_server_turn(self, run: str) -> ServerTurn | None:
        found = self._conn.execute_raw(
            f"select {_TURN} from procrastinate_jobs where {_OF_RUN} {_TURNS}", (run,)
        )
        return next((ServerTurn(*row) for row in found), None)

    def mark_turn_taken(self, job: int) -> None:
        sql = f"update procrastinate_jobs set status = 'doing', {_ADMITTED} where id = $1"
        self._conn.execute_raw(sql, (job,))

    def remove_server_turn(self, run: str) -> bool:
        sql = f"delete from procrastinate_jobs where {_OF_RUN} {_TURNS}"
        return self._conn.execute_raw(sql, (run,)).rowcount > 0

    def list_runs_of_server(self, server: str) -> list[str]:
        return [run for (run,) in self._conn.execute_raw(_OF_SERVER, (server,))]


JSON_FIELD = "cast({column} as json) ->> '{field}'"
"""A text field of a JSON column, for `str.format`."""
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
left join lease l on l.run = r.run where {passes_sql(JSON_FIELD)}
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
