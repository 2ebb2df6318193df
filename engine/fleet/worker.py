"""worker: drives runs of its queues, each in a process of its own, and takes over those of workers that are gone."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from procrastinate import JobContext
from procrastinate.exceptions import ConnectorException, JobAborted

from interlock.engine.fleet import job as drive_process
from interlock.engine.store import Store
from interlock.engine.store.connection import Connection
from interlock.engine.store.database import address_of
from interlock.engine.store.queue import DRIVE, async_app, put_job
from interlock.state.errors import StoreError

_BEAT_S, _STALLED_S, _POLL_S = 3.0, 12.0, 1.0
_SWEEP_S = 5.0
_LOST_S = 10.0
"""Seconds a job or a run must look abandoned, on this worker's clock, before it is put back."""
_GRACE_S = 30.0
"""Seconds between a stop and the kill of what still drives."""
_DEATHS = 3
"""Times that a run's process or worker may die before the run is given up."""
_AGAIN_S = 2
Report = Callable[[str], None]


@dataclass
class Worker:
    """`report` is given a line for people on each thing that happens."""

    home: Path
    queues: Sequence[str]
    concurrency: int
    report: Report
    _driving: dict[str, "asyncio.subprocess.Process"] = field(default_factory=dict[str, Any])
    _stopping: bool = False
    _seen: dict[str, tuple[object, float]] = field(default_factory=dict[str, Any])
    """What the sweep found, and since when."""

    async def work(self) -> None:
        """Work until SIGTERM or Ctrl-C: no new jobs then, what runs stops at its next commit and is put back."""
        Store(self.home).open()
        app = async_app(address_of(Store(self.home).path))
        app.task(name=DRIVE, pass_context=True)(self._drive)
        async with app.open_async():
            worker = asyncio.ensure_future(
                app.run_worker_async(
                    queues=self.queues,
                    concurrency=self.concurrency,
                    name=f"{os.uname().nodename}:{os.getpid()}",
                    install_signal_handlers=False,
                    update_heartbeat_interval=_BEAT_S,
                    stalled_worker_timeout=_STALLED_S,
                    fetch_job_polling_interval=_POLL_S,
                    abort_job_polling_interval=_POLL_S,
                    shutdown_graceful_timeout=_GRACE_S + 5,
                    delete_jobs="always",
                )
            )
            for number in (signal.SIGTERM, signal.SIGINT):
                asyncio.get_running_loop().add_signal_handler(number, self._stop, worker)
            sweep = asyncio.ensure_future(self._sweep())
            try:
                with suppress(asyncio.CancelledError):
                    await worker
            finally:
                sweep.cancel()

    def _stop(self, worker: "asyncio.Future[None]") -> None:
        if not self._stopping:
            self._stopping = True
            self.report("stopping: no new runs; each run stops at its next commit and is put back")
            for process in self._driving.values():
                process.send_signal(signal.SIGTERM)
            worker.cancel()

    async def _drive(self, context: JobContext, run: str) -> None:
        """A job: drive a run."""
        if context.job.attempts >= _DEATHS:
            why = f"Its process or worker died {_DEATHS} times. Look into it, then: interlock resume {run}"
            await asyncio.to_thread(drive_process.fail, self.home, run, "PoisonRun", why)
            self.report(f"{run}: given up after {_DEATHS} deaths")
            return
        code, aborted = await self._process(context, run)
        queue = context.job.queue
        if aborted:
            self.report(f"{run}: stopped on request")
            raise JobAborted
        if self._stopping or code in (drive_process.BUSY, drive_process.UNREACHABLE):
            await self._put_back(run, queue, 0 if self._stopping else _AGAIN_S)
        elif code:
            self.report(f"{run}: its process ended with {code}; it is driven again")
            raise _DiedError(f"exit {code}")

    async def _process(self, context: JobContext, run: str) -> tuple[int, bool]:
        """Exit code of the run's process, and whether somebody asked it to stop."""
        env = {**os.environ, "INTERLOCK_HOME": str(self.home)}
        env.pop("INTERLOCK_STORE", None)  # the folder names it
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", drive_process.__name__, run),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env=env,
        )
        self._driving[run] = process
        self.report(f"{run}: driven by process {process.pid}")
        try:
            return await self._ended(process, context)
        finally:
            del self._driving[run]

    async def _ended(self, process: "asyncio.subprocess.Process", context: JobContext) -> tuple[int, bool]:
        ends = asyncio.ensure_future(process.wait())
        deadline, aborted = 0.0, False
        while not ends.done():
            await asyncio.wait({ends}, timeout=_POLL_S / 4)
            if context.should_abort() and not self._stopping and not aborted:
                aborted = True
                process.send_signal(signal.SIGINT)
            if (aborted or self._stopping) and not ends.done():
                deadline = deadline or time.monotonic() + _GRACE_S
                if time.monotonic() > deadline:
                    process.kill()
        return ends.result(), aborted

    async def _put_back(self, run: str, queue: str, after_s: int) -> None:
        """A job of its own, so that deaths alone are counted."""

        def put_back(conn: Connection) -> bool:
            due = conn.execute(
                f"select 1 from runs r where r.run = ? and r.status = 'open' and {_DUE}", (run,)
            )
            if found := due.fetchone():
                put_job(conn, run, queue, after_s)
            return bool(found)

        if await asyncio.to_thread(self._in_transaction, put_back):
            self.report(f"{run}: put back")

    def _in_transaction(self, act: Callable[[Connection], Any]) -> Any:
        with closing(Store(self.home).connect()) as conn, conn.transaction():
            return act(conn)

    async def _sweep(self) -> None:
        """Put back what nobody drives: jobs of dead workers, jobs whose run's lease is silent, runs without a job."""
        while True:
            await asyncio.sleep(_SWEEP_S)
            try:
                for what in await asyncio.to_thread(self._in_transaction, self._abandoned):
                    self.report(what)
            except (StoreError, ConnectorException) as error:
                self.report(f"sweep: {error}")

    def _abandoned(self, conn: Connection) -> list[str]:
        now, told, seen = time.monotonic(), list[str](), dict[str, tuple[object, float]]()
        for run, job, queue, *sign in conn.execute(_UNSURE, {"stalled": _STALLED_S}).fetchall():
            if run in self._driving:
                continue
            name = f"{run} {job}"
            before, since = self._seen.get(name, (sign, now))
            seen[name] = (sign, since if before == sign else now)
            if now - seen[name][1] >= _LOST_S or (sign[0] and job):
                del seen[name]
                told.append(_taken_over(conn, run, job, queue))
        self._seen = seen
        return told


class _DiedError(Exception):
    """The process of a run crashed."""


_DUE = (
    "not exists (select 1 from approvals a where a.run = r.run and a.answer is null and a.superseded = 0 "
    "and a.interrupt is not null)"
)
"""Of a run `r` that isn't over: nothing of it waits for a person."""
_UNSURE = f"""
select r.run, j.id, r.queue,
       j.id is not null and (w.id is null or w.last_heartbeat < now() - make_interval(secs => :stalled)),
       coalesce(l.epoch, 0), coalesce(l.beat, 0), coalesce(l.held, 0)
from runs r left join lease l on l.run = r.run
left join procrastinate_jobs j on j.lock = r.run and j.status = 'doing'
left join procrastinate_workers w on w.id = j.worker_id
where r.queue is not null and r.status = 'open' and not exists
      (select 1 from procrastinate_jobs t where t.lock = r.run and t.status = 'todo')
      and (j.id is not null or {_DUE})
"""
"""Runs that a job drives, or that none does: with what changes while somebody really drives them."""


def _taken_over(conn: Connection, run: str, job: int | None, queue: str) -> str:
    if job is None:
        put_job(conn, run, queue)
        return f"{run}: had no job; put back"
    # Only while it is still being done: another worker's sweep may have been quicker.
    conn.execute(
        "select procrastinate_retry_job_v2(id, now(), null, null, null) from procrastinate_jobs "
        "where id = ? and status = 'doing'",
        (job,),
    )
    return f"{run}: its worker is gone; put back"
