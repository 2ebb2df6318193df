"""worker: drives runs of its queues, each in a process of its own, and takes over those of workers that are gone."""

import asyncio
import logging
import os
import signal
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

from interlock.cli.warm.fork_client import FORKER, Child
from interlock.engine.store import Store, queue
from interlock.engine.store.connection import Connection
from interlock.engine.store.jobs import PossiblyAbandonedRun
from interlock.engine.store.leases import revoke_leases_of_process
from interlock.engine.store.rate_limits import admit_or_requeue_job, end_job_admission, release_held_jobs
from interlock.engine.store.runs import set_run_error
from interlock.fleet import drive_process, queue_schema, schedule_process
from interlock.fleet.postgres import is_schema_newer_than_program
from interlock.services.process.identity import ProcessIdentity, boot_id, host_and_pid_namespace
from interlock.state.errors import BusyError, StoreError
from interlock.state.text import make_visible

if TYPE_CHECKING:
    from procrastinate import JobContext

T = TypeVar("T")

_BEAT_S, _STALLED_S, _POLL_S = 3.0, 12.0, 1.0
_SWEEP_S = 5.0
_LOST_S = 10.0
"""Seconds a run must look abandoned, on this worker's clock, before it is put back."""
_GRACE_S = 30.0
"""Seconds between a stop and the kill of what still drives."""
_DEATHS = 3
"""Times that a run's process or worker may die without getting further before the run is given up."""
_AGAIN_S = 2
_SAID_BYTES = 4_000
_LINE = 300
_LOOK_S = 0.05
"""Seconds between two looks whether a process has ended."""


_STOPPING = "Stopping: no new runs."
_UPGRADED = (
    "A newer Interlock has upgraded the store: this worker takes no more runs, and ends. "
    "Start the newer one here."
)


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


@dataclass
class Worker:
    """`report` is given a line for people on each thing that happens."""

    home: Path
    queues: Sequence[str]
    concurrency: int
    report: Callable[[str], None]
    _taken: set[str] = field(default_factory=set[str])
    """Runs whose job it has; on a busy machine a process takes its time to start."""
    _driving: dict[str, Child] = field(default_factory=dict[str, Any])
    _stopping: bool = False
    _seen: dict[PossiblyAbandonedRun, float] = field(default_factory=dict[PossiblyAbandonedRun, float])
    """What the sweep found, and since when."""
    _own: set[int] = field(default_factory=set[int])
    """What the queue calls this worker."""
    _work: "asyncio.Future[None]" = field(init=False)
    _away: str = ""
    """Why the store doesn't answer, as it was reported last."""

    async def run_until_signal(self) -> None:
        """Work until SIGTERM or Ctrl-C: no new jobs then, what runs stops at its next commit and is put back."""
        logging.basicConfig(level=logging.WARNING, handlers=[_ReportingHandler(self.report)])
        worker = self._work = asyncio.ensure_future(self._take_jobs_across_outages())
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._begin_shutdown, _STOPPING)
        sweep = asyncio.ensure_future(self._recover_abandoned_work_periodically())
        try:
            with suppress(asyncio.CancelledError):
                await worker
        finally:
            sweep.cancel()

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
            await asyncio.sleep(_AGAIN_S)

    async def _run_queue_worker(self) -> None:
        app = queue_schema.make_queue_app(Store(self.home).path)
        app.task(name=queue.DRIVE, pass_context=True)(self._drive_job)
        app.task(name=queue.START, pass_context=True)(self._start_scheduled_run)
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
                shutdown_graceful_timeout=_GRACE_S + 5,
                delete_jobs="always",
            )

    def _begin_shutdown(self, why: str) -> None:
        if not self._stopping:
            self._stopping = True
            self.report(f"{why} Each run stops at its next commit and is put back.")
            for process in self._driving.values():
                process.send_signal(signal.SIGTERM)
            self._work.cancel()

    async def _drive_job(
        self, context: "JobContext", run: str, steps: int = 0, deaths: int = 0, model: str = "", **_more: Any
    ) -> None:
        """A job. `steps`: how far the run was when the job was put; `deaths`: of its process before that.

        `model`: for whose limit it waited.
        """
        work = asyncio.ensure_future(self._drive_or_give_up_run(context, run, steps, deaths, model))
        while True:
            try:
                return await asyncio.shield(work)
            except asyncio.CancelledError:
                # The queue cancels this task if somebody cancels the run. But the run's process stops at its next
                # commit, and gives its lease back: until then it is waited for.
                if self._stopping or work.done():
                    work.cancel()
                    raise

    async def _drive_or_give_up_run(
        self, context: "JobContext", run: str, steps: int, deaths: int, model: str
    ) -> None:
        if await self._write_with_retry(is_schema_newer_than_program):
            await self._write_with_retry(
                lambda conn: queue.enqueue_run_if_worker_driven(conn, run, if_due=True)
            )
            return self._begin_shutdown(_UPGRADED)
        if context.job.worker_id is not None:
            self._own.add(context.job.worker_id)
        deaths += context.job.attempts  # those of workers: the sweep put the job back
        if deaths and (
            said := await self._write_with_retry(
                lambda conn: _give_up_run_if_died_too_often(conn, run, steps, deaths)
            )
        ):
            self.report(said)
            return
        job = context.job.id or 0
        self._taken.add(run)
        try:
            if waits := await self._write_with_retry(
                lambda conn: admit_or_requeue_job(conn, job, run, deaths, model)
            ):
                self.report(f"{run}: waits. {waits}")
                return
            await self._drive_in_own_process(context, run, steps, deaths)
        finally:
            self._taken.discard(run)
            await self._write_with_retry(lambda conn: end_job_admission(conn, job))

    async def _drive_in_own_process(self, context: "JobContext", run: str, steps: int, deaths: int) -> None:
        from procrastinate.exceptions import JobAborted

        code, aborted, said, owner = await self._run_process(context, run, drive_process.__name__, run)
        if code:  # killed, or without the store at its end
            await self._write_with_retry(partial(revoke_leases_of_process, run=run, owner=owner))
        if aborted:
            self.report(f"{run}: stopped on request")
            await self._write_with_retry(partial(queue.mark_due_run_stopped, run=run, kind="cancelled"))
            raise JobAborted
        if self._stopping or code == drive_process.TRY_AGAIN:
            # A job of its own, so that deaths alone are counted.
            after_s = 0 if self._stopping else _AGAIN_S
            if await self._write_with_retry(
                lambda conn: queue.enqueue_run_if_worker_driven(conn, run, after_s, if_due=True)
            ):
                self.report(f"{run}: put back" + (f": {said}" if said and not self._stopping else ""))
        elif code:
            how = f"its process died ({_describe_exit(code)})" + (f": {said}" if said else "")
            self.report(f"{run}: {how}")
            await self._write_with_retry(lambda conn: _requeue_run_after_death(conn, run, steps, deaths, how))

    async def _start_scheduled_run(
        self, context: "JobContext", schedule: str, due: int, deaths: int = 0, **_more: Any
    ) -> None:
        """A job: start a run of a schedule whose time has come."""
        what = f"schedule {schedule}"
        code, _, said, _ = await self._run_process(
            context, what, schedule_process.__name__, schedule, str(due)
        )
        if code:
            died = code != drive_process.TRY_AGAIN and not self._stopping
            self.report(f"{what}: put back: {said or _describe_exit(code)}")
            await self._write_with_retry(
                partial(queue.retry_or_skip_schedule_start, name=schedule, due=due, deaths=deaths + died)
            )

    async def _run_process(
        self, context: "JobContext", label: str, module: str, *arguments: str
    ) -> tuple[int, bool, str, ProcessIdentity]:
        """Exit code of a process, whether somebody asked it to stop, the last line that it printed, and who it was."""
        env = {**os.environ, "INTERLOCK_HOME": str(self.home), "INTERLOCK_STORE": ""}  # the folder names it
        stdin, lifeline = os.pipe()
        try:
            with tempfile.TemporaryFile() as said:  # a pipe would stay open in what the process leaves behind
                streams = {"stdin": stdin, "stderr": said.fileno()}
                process = await asyncio.to_thread(
                    FORKER.start, module, *arguments, str(self.home), env=env, **streams
                )
                self._driving[label] = process
                self.report(f"{label}: driven by process {process.pid}")
                owner = ProcessIdentity(host_and_pid_namespace(), boot_id(), process.pid, "")
                return (
                    *await self._wait_for_exit_and_forward_abort(process, context),
                    _last_printed_line(said),
                    owner,
                )
        finally:
            for end in (stdin, lifeline):
                os.close(end)
            self._driving.pop(label, None)

    async def _wait_for_exit_and_forward_abort(
        self, process: Child, context: "JobContext"
    ) -> tuple[int, bool]:
        deadline, aborted = 0.0, False
        while (code := process.poll()) is None:
            await asyncio.sleep(_LOOK_S)
            if context.should_abort() and not self._stopping and not aborted:
                aborted = True
                process.send_signal(signal.SIGINT)
            if aborted or self._stopping:
                deadline = deadline or time.monotonic() + _GRACE_S
                if time.monotonic() > deadline:
                    process.send_signal(signal.SIGKILL)
        return code, aborted

    async def _write_with_retry(self, change: Callable[[Connection], T]) -> T:
        """Write in a transaction of the store; while it doesn't answer, try again."""

        def write() -> T:
            with Store(self.home).write_transaction() as conn:
                return change(conn)

        while True:
            try:
                done = await asyncio.to_thread(write)
                if self._away:
                    self._away = ""
                    self.report("The store answers again.")
                return done
            except (StoreError, BusyError) as error:
                self._report_outage(error)
                await asyncio.sleep(_AGAIN_S)

    def _report_outage(self, error: Exception) -> None:
        if str(error) != self._away:
            self._away = str(error)
            self.report(f"The store doesn't answer: {error}")

    async def _recover_abandoned_work_periodically(self) -> None:
        """Put back what nobody drives: jobs of dead workers, jobs whose run's lease is silent, runs without a job."""
        while True:
            await asyncio.sleep(_SWEEP_S)
            if await self._write_with_retry(is_schema_newer_than_program):
                return self._begin_shutdown(_UPGRADED)
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


def _requeue_run_after_death(conn: Connection, run: str, steps: int, deaths: int, cause: str) -> None:
    """Inside a transaction: put a job for a run whose process died, unless it was cancelled meanwhile."""
    if not queue.can_run_continue(conn, run):
        return
    set_run_error(conn, run, {"type": "died", "message": cause})  # for whoever gives the run up
    before = 0 if queue.has_run_progressed(conn, run, steps) else deaths
    queue.enqueue_run_if_worker_driven(conn, run, _AGAIN_S, if_due=True, deaths=before + 1)


def _give_up_run_if_died_too_often(conn: Connection, run: str, steps: int, deaths: int) -> str:
    """Inside a transaction: give up a run that died too often without getting further; returns a line on that."""
    if deaths < _DEATHS or queue.has_run_progressed(conn, run, steps):
        return ""
    last = queue.read_death_message(conn, run)
    why = f"its process or worker died {deaths} times without getting further" + (f"; {last}" if last else "")
    what_now = f"Look into it, then: interlock resume {run}"
    queue.mark_run_failed_and_revoke_lease(conn, run, "died", f"{why[0].upper()}{why[1:]}. {what_now}")
    return f"{run}: given up: {why}"


def _last_printed_line(output: IO[bytes]) -> str:
    size = output.seek(0, os.SEEK_END)
    output.seek(max(0, size - _SAID_BYTES))
    lines = output.read().decode(errors="replace").split("\n")
    return make_visible(next((line.strip() for line in reversed(lines) if line.strip()), ""))


def _describe_exit(code: int) -> str:
    return signal.Signals(-code).name if -code in [*signal.Signals] else f"exit code {code}"
