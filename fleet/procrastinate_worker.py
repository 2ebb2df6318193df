"""procrastinate_worker: takes jobs of PostgreSQL's queue, and takes over those of workers that are gone."""

import asyncio
import logging
import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from interlock.engine.store import Store, queue
from interlock.engine.store.connection import Connection
from interlock.engine.store.jobs import PossiblyAbandonedRun
from interlock.engine.store.procrastinate_jobs import DRIVE, START
from interlock.engine.store.rate_limits import release_held_jobs
from interlock.fleet import queue_schema
from interlock.fleet.postgres import is_schema_newer_than_program
from interlock.fleet.worker import AGAIN_S, GRACE_S, STOPPING, UPGRADED, Worker
from interlock.state.errors import BusyError, StoreError

if TYPE_CHECKING:
    from procrastinate import JobContext

_BEAT_S, _STALLED_S, _POLL_S = 3.0, 12.0, 1.0
_SWEEP_S = 5.0
_LOST_S = 10.0
"""Seconds a run must look abandoned, on this worker's clock, before it is put back."""
_LINE = 300


class _ReportingHandler(logging.Handler):
    """What the queue and its connections warn of, in a line each."""

    def __init__(self, report: Callable[[str], None]) -> None:
        super().__init__()
        self._report, self._last = report, ""

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        cause = error and (error.__cause__ or (error if record.name == "asyncio" else None))
        said = str(cause or record.getMessage())  # not how the task looks, nor that a database has errors
        line = " ".join(said.split())[:_LINE]
        if line != self._last:  # a pool says it at each try
            self._last = line
            self._report(line)


class _ProcrastinateJob(NamedTuple):
    context: "JobContext"

    @property
    def id(self) -> int:
        return self.context.job.id or 0

    @property
    def attempts(self) -> int:
        return self.context.job.attempts

    def is_stop_requested(self) -> bool:
        return self.context.should_abort()


@dataclass
class ProcrastinateWorker(Worker):
    """A worker of some queues of a store in PostgreSQL."""

    queues: Sequence[str] = ()
    _seen: dict[PossiblyAbandonedRun, float] = field(default_factory=dict[PossiblyAbandonedRun, float])
    """What the sweep found, and since when."""
    _own: set[int] = field(default_factory=set[int])
    """What the queue calls this worker."""
    _work: "asyncio.Future[None]" = field(init=False)

    async def run_until_signal(self) -> None:
        logging.basicConfig(level=logging.WARNING, handlers=[_ReportingHandler(self.report)])
        worker = self._work = asyncio.ensure_future(self._take_jobs_across_outages())
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._begin_shutdown, STOPPING)
        sweep = asyncio.ensure_future(self._recover_abandoned_work_periodically())
        try:
            with suppress(asyncio.CancelledError):
                await worker
        finally:
            sweep.cancel()

    def _stop_taking_jobs(self) -> None:
        self._work.cancel()

    def _is_store_newer(self, conn: Connection) -> bool:
        return is_schema_newer_than_program(conn)

    async def _take_jobs_across_outages(self) -> None:
        """Take jobs from the queue; after an outage of the store, which ends that, begin again."""
        while not self._stopping:
            try:
                with Store(self.home).database.explain_errors(), queue_schema.unwrap_queue_errors():
                    await self._run_queue_worker()
            except (StoreError, BusyError) as error:
                if _is_stalled_worker_removal(error):
                    self.report(
                        "It was silent for so long that another worker counted it out. It begins again."
                    )
                else:
                    self._report_outage(error)
            await asyncio.sleep(AGAIN_S)

    async def _run_queue_worker(self) -> None:
        app = queue_schema.make_queue_app(Store(self.home).path)
        app.task(name=DRIVE, pass_context=True)(self._drive_job)
        app.task(name=START, pass_context=True)(self._start_job)
        async with app.open_async():
            await app.run_worker_async(
                queues=self.queues,
                concurrency=self.concurrency,
                name=f"{os.uname().nodename}:{os.getpid()}",
                install_signal_handlers=False,
                update_heartbeat_interval=_BEAT_S,
                stalled_worker_timeout=_STALLED_S,
                fetch_job_polling_interval=_POLL_S,
                abort_job_polling_interval=_POLL_S,
                shutdown_graceful_timeout=GRACE_S + 5,
                delete_jobs="always",
            )

    async def _drive_job(
        self, context: "JobContext", run: str, steps: int = 0, deaths: int = 0, model: str = "", **_more: Any
    ) -> None:
        """A job."""
        from procrastinate.exceptions import JobAborted

        if context.job.worker_id is not None:
            self._own.add(context.job.worker_id)
        work = asyncio.ensure_future(
            self._drive_or_give_up_run(_ProcrastinateJob(context), run, steps, deaths, model)
        )
        while True:
            try:
                if await asyncio.shield(work):
                    raise JobAborted
                return
            except asyncio.CancelledError:
                # The queue cancels this task if somebody cancels the run. But the run's process stops at its next
                # commit, and gives its lease back: until then it is waited for.
                if self._stopping or work.done():
                    work.cancel()
                    raise

    async def _start_job(
        self, context: "JobContext", schedule: str, due: int, deaths: int = 0, **_more: Any
    ) -> None:
        """A job: start a run of a schedule whose time has come."""
        await self._start_scheduled_run(_ProcrastinateJob(context), schedule, due, deaths)

    async def _recover_abandoned_work_periodically(self) -> None:
        """Put back what nobody drives: jobs of dead workers, jobs whose run's lease is silent, runs without a job."""
        while True:
            await asyncio.sleep(_SWEEP_S)
            if await self._write_with_retry(is_schema_newer_than_program):
                return self._begin_shutdown(UPGRADED)
            await self._write_with_retry(self._requeue_abandoned_runs)
            await self._write_with_retry(release_held_jobs)
            await self._write_with_retry(lambda conn: queue.requeue_lost_schedule_starts(conn, _STALLED_S))

    def _requeue_abandoned_runs(self, conn: Connection) -> None:
        now = time.monotonic()
        found = [
            one
            for one in conn.jobs.list_possibly_abandoned_runs(_STALLED_S)
            if self._is_possibly_abandoned(one)
        ]
        self._seen = {one: self._seen.get(one, now) for one in found}
        for one, since in [*self._seen.items()]:
            if one.stalled or now - since >= _LOST_S:
                del self._seen[one]
                queue.requeue_abandoned_run(conn, one)
                self.report(f"{one.run}: nobody drives it; put back")

    def _is_possibly_abandoned(self, candidate: PossiblyAbandonedRun) -> bool:
        if candidate.run in self._taken:
            return False
        # A job without a lease may be about to take it; only the worker that has the job knows.
        return (
            candidate.stalled
            or candidate.job is None
            or bool(candidate.held)
            or candidate.worker in self._own
        )


def _is_stalled_worker_removal(error: Exception) -> bool:
    """Return whether it couldn't take a job because another worker, at its start, removed it as silent."""
    return getattr(error.__cause__, "sqlstate", "") == "23503"  # foreign_key_violation: of the job's worker
