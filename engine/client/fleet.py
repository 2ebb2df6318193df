"""fleet: what front ends do with runs that workers drive: set up, work, look, stop, and copy between stores."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from interlock.engine.store import Store, explained, reading
from interlock.engine.store.database import address_of
from interlock.state.errors import UserError

_NO_SERVER = (
    "Workers drive runs that are in PostgreSQL, and this store is a file. Name the database with "
    "INTERLOCK_STORE=postgresql://USER@HOST/DATABASE, and set it up with: interlock fleet init"
)


class Job(NamedTuple):
    """A job of the queue."""

    run: str
    queue: str
    doing: bool
    worker: str
    """Host and process; empty: it waits."""
    attempts: int
    """Times that its process or worker died."""
    age_s: float


class Standing(NamedTuple):
    """How the fleet stands."""

    workers: dict[int, float]
    """Number → seconds since its last heartbeat."""
    jobs: list[Job]
    decisions: int
    """Requests that wait for a person."""


@dataclass(frozen=True)
class Fleet:
    """Raises `UserError` for a store that is a file."""

    home: Path

    def __post_init__(self) -> None:
        if not address_of(Store(self.home).path):
            raise UserError(_NO_SERVER)

    def set_up(self) -> None:
        """Make the tables of store and queue, if they are missing. Raises `StoreError`."""
        from interlock.engine.store.queue import make_queue

        store = Store(self.home)
        store.open()
        with explained(store.path):
            make_queue(address_of(store.path))

    def host_queue(self) -> str:
        """The queue of runs whose files are on this host."""
        from interlock.engine.store.queue import host_queue

        return host_queue()

    def work(self, queues: Sequence[str], concurrency: int, report: Callable[[str], None]) -> None:
        """Drive runs until SIGTERM or Ctrl-C. `report` is given a line on each thing that happens."""
        from interlock.engine.fleet.worker import Worker

        self.set_up()
        with explained(Store(self.home).path):
            asyncio.run(Worker(self.home, queues, concurrency, report).work())

    def standing(self) -> Standing:
        with reading(self.home) as conn:
            assert conn is not None
            jobs = [Job(*row) for row in conn.execute(_JOBS)]
            return Standing(
                dict(conn.execute(_WORKERS).fetchall()), jobs, conn.execute(_WAITING).fetchone()[0]
            )

    def cancel(self, run: str) -> str:
        """Take back what waits, and ask the worker that drives the run to stop; returns what was done."""
        from interlock.engine.store.queue import take_back

        store = Store(self.home)
        with explained(store.path), closing(store.connect()) as conn, conn.transaction():
            doing = take_back(conn, run)
        return "Its worker was asked to stop." if doing else "No worker drives it now."


_JOBS = """
select j.lock, j.queue_name, j.status = 'doing', coalesce(l.host || ':' || cast(l.pid as text), ''), j.attempts,
       cast(extract(epoch from now() - (select min(e.at) from procrastinate_events e where e.job_id = j.id))
            as double precision)
from procrastinate_jobs j left join lease l on l.run = j.lock and l.held = 1
where j.status in ('todo', 'doing') order by j.id
"""
_WORKERS = """
select id, cast(extract(epoch from now() - last_heartbeat) as double precision)
from procrastinate_workers order by id
"""
_WAITING = """
select count(*) from approvals a join runs r on r.run = a.run where a.answer is null and a.superseded = 0
and a.interrupt is not null and r.status not in ('done', 'failed', 'cancelled')
"""
