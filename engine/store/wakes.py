"""wakes: the queue of a store in a file: rows that say what wakes a run, and when. The local worker looks for them.

A row is written in the transaction that gives a reason for it. What may drive a run is its lease alone: a row that a
worker has begun only counts for limits, and is put back once that worker is gone.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from interlock.engine.store.connection import Connection
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
from interlock.engine.store.tables import NOT_NULL, Plus, Row
from interlock.engine.store.worker_file import find_worker
from interlock.state.clock import unix_time

_TABLE = ("wakes",)
_COUNTED = {"user": "user_name", "workflow": "workflow", "model": "model"}
"""What a limit is of, and the column that has it."""
_SERVER_GRACE_S = 60
"""Seconds within which a server that took a turn has begun to drive: its turn counts until then in any case."""


class TakenJob(NamedTuple):
    """A job that a worker begins."""

    job: int
    kind: WakeKind
    key: str
    attempts: int
    """Times that a worker died with it."""
    args: Mapping[str, Any]


class Wakes(Jobs):
    """The rows of one store, in the open transaction of a connection."""

    def __init__(self, conn: Connection, home: Path) -> None:
        """`home`: the store's folder, where the worker leaves its name."""
        self._conn, self._home = conn, home

    def is_set_up(self) -> bool:
        return True

    def read_database_time(self) -> datetime:
        return datetime.fromtimestamp(unix_time(), UTC)

    def enqueue_job_unless_waiting(
        self,
        kind: WakeKind,
        key: str,
        queue: str,
        args: Mapping[str, Any],
        priority: int = 0,
        at: datetime | None = None,
    ) -> None:
        if self._find_waiting(key):
            # Whoever resumes a run that waits for a key has one now.
            self._conn.update("wakes", {"queue": queue}, {"key": key, "begun": None, "queue": _NEEDS_KEY})
            return
        now = unix_time()
        whose = {"user_name": "", "workflow": "", "server": "", "model": ""}
        whose |= {
            column: args[name] for name, column in (*_COUNTED.items(), ("server", "server")) if name in args
        }
        due = at.timestamp() if at else now
        row: Row = {"kind": kind, "key": key, "queue": queue, "priority": priority, "due": due, "since": now}
        self._conn.insert("wakes", {**row, **whose, "args": json.dumps(dict(args))})

    def _find_waiting(self, key: str) -> Any:
        return self._one("select id, due from wakes where key = $1 and begun is null", key)

    def _all(self, sql: str, *values: object) -> list[Any]:
        return self._conn.execute(sql, values, tables=_TABLE).fetchall()

    def _one(self, sql: str, *values: object) -> Any:
        return self._conn.execute(sql, values, tables=_TABLE).fetchone()

    def has_unfinished_job(self, key: str) -> bool:
        return self._one("select 1 from wakes where key = $1 limit 1", key) is not None

    def find_waiting_job_due_time(self, key: str) -> datetime | None:
        found = self._find_waiting(key)
        return datetime.fromtimestamp(found[1], UTC) if found else None

    def remove_waiting_job(self, key: str) -> None:
        self._conn.delete("wakes", {"key": key, "begun": None})

    def find_queue_priorities(
        self, run: str, user: str, queue: str, bottom: int, top: int
    ) -> tuple[int | None, int | None, int | None]:
        kept, first, last = self._one(_PLACES, run, user, queue, bottom, top)
        return kept, first, last

    def cancel_jobs_of_run(self, run: str, *, only_server_turns: bool) -> bool | None:
        of_servers = "and server <> ''" if only_server_turns else ""
        found = self._all(f"select id, begun from wakes where key = $1 {of_servers}", run)
        for job, begun in found:
            if begun is None:
                self._conn.delete("wakes", {"id": job})
            else:
                self._conn.update("wakes", {"stop": 1}, {"id": job})
        return any(begun is not None for _, begun in found) if found else None

    def is_stop_requested(self, run: str) -> bool:
        return (
            self._one("select 1 from wakes where key = $1 and begun is not null and stop = 1", run)
            is not None
        )

    def requeue_or_end_running_job(self, job: int, run: str) -> None:
        if self._find_waiting(run):
            self.end_job(job)
        else:
            self._conn.update("wakes", {**_PUT_BACK, "attempts": Plus(1), "stop": 0}, {"id": job})

    def list_possibly_abandoned_runs(self, stalled_s: float) -> list[PossiblyAbandonedRun]:  # noqa: ARG002 - as Jobs
        """Return what an earlier worker has begun, and what may go on and nobody drives: for a worker that begins."""
        passes = passes_sql(self._conn.dialect.json_field)
        return [PossiblyAbandonedRun(*row) for row in self._all(_UNSURE.format(passes=passes))]

    def remove_abandoned_jobs(self, kind: WakeKind, stalled_s: float) -> list[dict[str, Any]]:  # noqa: ARG002 - as Jobs
        found = self._all("select id, args from wakes where kind = $1 and begun is not null", kind)
        for job, _ in found:
            self.end_job(job)
        return [json.loads(args) for _, args in found]

    def read_worker_heartbeat_ages(self) -> dict[int, float]:
        worker = find_worker(self._home)
        return {worker.pid: 0.0} if worker else {}

    def list_drive_jobs(self) -> list[Job]:
        return [
            Job(
                run, queue, begun is not None, driver, attempts + json.loads(args).get("deaths", 0), age_s, user,
                -(-priority // LEVEL), awaited_limit(None if begun else error),
            )
            for run, queue, begun, driver, attempts, args, age_s, user, priority, error in self._all(_JOBS, unix_time())
        ]  # fmt: skip

    def list_queues_and_waits_of_unserved_runs(
        self,
        runs: Sequence[str],
        stalled_s: float,  # noqa: ARG002 - as Jobs
    ) -> list[tuple[str, float]]:
        if find_worker(self._home):
            return []
        now, wanted = unix_time(), {*runs}
        waiting = self._all(f"select key, queue, since from wakes where {_TAKEABLE} and due <= $1", now)
        return [(queue, now - since) for key, queue, since in waiting if key in wanted]

    def read_connection_count_and_limit(self) -> None:
        return None

    def count_admitted_jobs(self, kind: str, name: str, except_job: int = 0) -> int:
        sql = _ADMITTED.format(column=_COUNTED[kind])
        return self._one(sql, name, except_job, unix_time() - _SERVER_GRACE_S)[0]

    def mark_admitted(self, job: int) -> None:
        self._conn.update("wakes", {"admitted": unix_time()}, {"id": job})

    def unmark_admitted(self, job: int) -> bool:
        return self._conn.update("wakes", {"admitted": None}, {"id": job, "admitted": NOT_NULL}).rowcount > 0

    def move_to_held_queue(self, job: int, queue: str) -> None:
        self._conn.update("wakes", {"queue": queue}, {"id": job})

    def list_held_queues(self) -> list[str]:
        found = self._all(f"select distinct queue from wakes where begun is null and queue like '{HELD}%'")
        return [queue for (queue,) in found if queue != _NEEDS_KEY]

    def release_jobs_of_queue(self, held_queue: str, limit: int | None) -> list[str]:
        found = self._all(_FIRST_HELD, held_queue, -1 if limit is None else limit)
        for job, _, queue, server in found:
            back: Row = {"queue": server or queue}
            # The turn of a server is taken with that: nobody else fetches it.
            taken: Row = {"begun": unix_time(), "admitted": unix_time()} if server else {}
            self._conn.update("wakes", {**back, **taken}, {"id": job})
        return [run for _, run, *_ in found]

    def make_limit_delayed_jobs_due(self) -> None:
        self._conn.update("wakes", {"due": unix_time()}, {"kind": "limit", "begun": None})

    def find_server_turn(self, run: str) -> ServerTurn | None:
        found = self._one(_TURN, run)
        if found is None:
            return None
        job, queue, user, workflow, begun, due = found
        return ServerTurn(job, queue, user, workflow, begun is not None, due > unix_time())

    def mark_turn_taken(self, job: int) -> None:
        self._conn.update("wakes", {"begun": unix_time(), "admitted": unix_time()}, {"id": job})

    def remove_server_turn(self, run: str) -> bool:
        turn = self.find_server_turn(run)
        return turn is not None and self._conn.delete("wakes", {"id": turn.job}).rowcount > 0

    def list_runs_of_server(self, server: str) -> list[str]:
        return [run for (run,) in self._all("select key from wakes where server = $1", server)]

    def take_first_due_job(self) -> TakenJob | None:
        """Begin the first job that is due; None: none is. For the store's only worker."""
        found = self._one(_FIRST_DUE, unix_time())
        if found is None:
            return None
        job, kind, key, attempts, args = found
        self._conn.update("wakes", {"begun": unix_time(), "stop": 0}, {"id": job})
        return TakenJob(job, kind, key, attempts, json.loads(args))

    def end_job(self, job: int) -> None:
        """Remove a job that was begun."""
        self._conn.delete("wakes", {"id": job})

    def list_stop_requests(self) -> set[int]:
        """Return the begun jobs that somebody wants to end."""
        return {job for (job,) in self._all("select id from wakes where begun is not null and stop = 1")}

    def find_next_due_time(self) -> float | None:
        """Return when the first job that waits is due, in seconds since the epoch; None: none waits for a time."""
        return self._one(f"select min(due) from wakes where {_TAKEABLE}")[0]

    def count_due_jobs(self) -> int:
        sql = f"select count(*) from wakes where server = '' and queue not like '{HELD}%' and due <= $1"
        return self._one(sql, unix_time())[0]

    def forget_deaths(self) -> None:
        """Count no death of jobs that a worker has begun: the machine went down, whatever they did."""
        self._conn.update("wakes", {"attempts": Plus(-1)}, {"begun": NOT_NULL, "server": ""})

    def hold_for_key(self, run: str) -> None:
        """Let nobody take the run's waiting job before somebody brings a key."""
        self._conn.update("wakes", {"queue": _NEEDS_KEY}, {"key": run, "begun": None})

    def release_runs_waiting_for_keys(self) -> None:
        """Let what waits for a key be tried: there may be one now."""
        for job, queue in self._all(_HELD_FOR_KEY, _NEEDS_KEY):
            self._conn.update("wakes", {"queue": queue}, {"id": job})


_NEEDS_KEY = f"{HELD}key"
"""The queue of runs whose key was in a worker's memory, which is gone."""
_HELD_FOR_KEY = "select w.id, r.queue from wakes w join runs r on r.run = w.key where w.queue = $1"
_PUT_BACK: Row = {"begun": None, "admitted": None}
_TAKEABLE = f"begun is null and server = '' and queue not like '{HELD}%'"
_LINE = "from wakes where begun is null and queue = $3 and priority > $4 and priority <= $5"
_PLACES = f"""
select (select priority from wakes where key = $1 and begun is not null),
       (select max(priority) {_LINE}), (select min(priority) {_LINE} and user_name = $2)
"""
# A run that is being driven waits for the end of that.
_FIRST_DUE = f"""
select id, kind, key, attempts, args from wakes w
where {_TAKEABLE} and due <= $1
and not exists (select 1 from wakes d where d.key = w.key and d.begun is not null)
order by priority desc, id limit 1
"""
_SIGNS = "coalesce(l.epoch, 0), coalesce(l.beat, 0), coalesce(l.held, 0)"
_UNSURE = f"""
select w.key, w.id, w.queue, null, true, {_SIGNS}
from wakes w left join lease l on l.run = w.key
where w.begun is not null and w.server = '' and w.kind <> 'schedule'
union all
select r.run, null, r.queue, null, false, {_SIGNS}
from runs r left join lease l on l.run = r.run
where r.queue is not null and r.status = 'open' and {NOT_ASKED} and {{passes}}
and not exists (select 1 from wakes w where w.key = r.run)
"""
_JOBS = """
select w.key, coalesce(r.queue, w.queue), w.begun, coalesce(l.host || ':' || l.pid, ''), w.attempts, w.args,
       $1 - w.since, w.user_name, w.priority, r.error
from wakes w left join lease l on l.run = w.key and l.held = 1 left join runs r on r.run = w.key
where w.kind <> 'schedule' order by w.begun is null, w.priority desc, w.id
"""
# A server may end without giving a turn back: it counts while somebody drives the run, or is about to.
_ADMITTED = """
select count(*) from wakes w where begun is not null and admitted is not null and {column} = $1 and id <> $2 and (
    server = '' or admitted > $3 or exists (select 1 from lease l where l.run = w.key and l.held = 1))
"""
_FIRST_HELD = """
select w.id, w.key, coalesce(r.queue, w.queue), w.server from wakes w left join runs r on r.run = w.key
where w.begun is null and w.queue = $1 order by w.priority desc, w.id limit $2
"""
_TURN = "select id, queue, user_name, workflow, begun, due from wakes where key = $1 and server <> ''"
