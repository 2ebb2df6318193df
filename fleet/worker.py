"""worker: drives runs of a queue, each in a process of its own, whatever keeps the queue.

`procrastinate_worker.py` takes jobs of PostgreSQL, `local_worker.py` those of a store in a file.
"""

import asyncio
import os
import signal
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Any, Protocol, TypeVar

from interlock.cli.warm.fork_client import FORKER, Child
from interlock.engine.store import Store, queue
from interlock.engine.store.connection import Connection
from interlock.engine.store.leases import revoke_leases_of_process
from interlock.engine.store.rate_limits import admit_or_requeue_job, end_job_admission
from interlock.engine.store.runs import set_run_error
from interlock.services.process.identity import ProcessIdentity, boot_id, host_and_pid_namespace
from interlock.state.errors import BusyError, StoreError
from interlock.state.text import make_visible

T = TypeVar("T")

AGAIN_S = 2
"""Seconds until a run whose process died, or a store that doesn't answer, is tried again."""
GRACE_S = 30.0
"""Seconds between a stop and the kill of what still drives."""
TRY_AGAIN = 3
"""Exit code of a drive: another process drives the run, or the store doesn't answer."""
_DRIVE, _START = "interlock.fleet.drive_process", "interlock.fleet.schedule_process"
"""What the processes of drives run, by name: a worker that waits imports none of it."""
_DEATHS = 3
"""Times that a run's process or worker may die without getting further before the run is given up."""
_SAID_BYTES = 4_000
_LOOK_S = 0.05
"""Seconds between two looks whether a process has ended."""
SCHEDULE_LABEL = "schedule "
STOPPING = "Stopping: no new runs."
UPGRADED = (
    "A newer Interlock has upgraded the store: this worker takes no more runs, and ends. "
    "Start the newer one here."
)


class TakenRun(Protocol):
    """A job that this worker has, as its queue knows it."""

    @property
    def id(self) -> int: ...

    @property
    def attempts(self) -> int:
        """Times that a worker died with it."""
        ...

    def is_stop_requested(self) -> bool: ...


@dataclass
class Worker(ABC):
    """`report` is given a line for people on each thing that happens."""

    home: Path
    concurrency: int
    report: Callable[[str], None]
    _taken: set[str] = field(default_factory=set[str])
    """Runs whose job it has; on a busy machine a process takes its time to start."""
    _driving: dict[str, Child] = field(default_factory=dict[str, Any])
    _admission: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while limits are asked for a job that was taken, so that jobs ask in the order of their priority."""
    _stopping: bool = False
    _away: str = ""
    """Why the store doesn't answer, as it was reported last."""

    @abstractmethod
    async def run_until_signal(self) -> None:
        """Work until SIGTERM or Ctrl-C: no new jobs then, what runs stops at its next commit and is put back."""

    @abstractmethod
    def _stop_taking_jobs(self) -> None: ...

    @abstractmethod
    def _is_store_newer(self, conn: Connection) -> bool:
        """Return whether a newer program has changed the store."""

    def _begin_shutdown(self, why: str) -> None:
        if not self._stopping:
            self._stopping = True
            self.report(f"{why} Each run stops at its next commit and is put back.")
            for process in self._driving.values():
                process.send_signal(signal.SIGTERM)
            self._stop_taking_jobs()

    async def _drive_or_give_up_run(
        self, taken: TakenRun, run: str, steps: int, deaths: int, model: str
    ) -> bool:
        """Return whether somebody stopped the run.

        `steps`: how far the run was when the job was put; `deaths`: of its process before that. `model`: for whose
        limit it waited.
        """
        deaths += taken.attempts  # those of workers: the job was put back
        async with self._admission:
            if not await self._is_still_to_be_driven(run, steps, deaths):
                return False
            self._taken.add(run)
            try:
                waits = await self._write_with_retry(
                    lambda conn: admit_or_requeue_job(conn, taken.id, run, deaths, model)
                )
            except BaseException:
                await self._end_admission(taken, run)
                raise
        try:
            if waits:
                self.report(f"{run}: waits. {waits}")
                return False
            return await self._drive_in_own_process(taken, run, steps, deaths)
        finally:
            await self._end_admission(taken, run)

    async def _end_admission(self, taken: TakenRun, run: str) -> None:
        self._taken.discard(run)
        await self._write_with_retry(lambda conn: end_job_admission(conn, taken.id))

    async def _is_still_to_be_driven(self, run: str, steps: int, deaths: int) -> bool:
        """Return whether a run that was taken is driven; not by an older program, and not after too many deaths."""
        if await self._write_with_retry(self._is_store_newer):
            await self._write_with_retry(
                lambda conn: queue.enqueue_run_if_worker_driven(conn, run, if_due=True)
            )
            self._begin_shutdown(UPGRADED)
            return False
        said = deaths and await self._write_with_retry(
            lambda conn: _give_up_run_if_died_too_often(conn, run, steps, deaths)
        )
        if said:
            self.report(said)
        return not said

    async def _drive_in_own_process(self, taken: TakenRun, run: str, steps: int, deaths: int) -> bool:
        """Return whether somebody stopped the run."""
        code, stopped, said, owner = await self._run_process(taken, run, _DRIVE, run)
        if code:  # killed, or without the store at its end
            await self._write_with_retry(partial(revoke_leases_of_process, run=run, owner=owner))
        if stopped:
            self.report(f"{run}: stopped on request")
            await self._write_with_retry(partial(queue.mark_due_run_stopped, run=run, kind="cancelled"))
        elif self._stopping or code == TRY_AGAIN:
            # A job of its own, so that deaths alone are counted.
            after_s = 0 if self._stopping else AGAIN_S
            if await self._write_with_retry(
                lambda conn: queue.enqueue_run_if_worker_driven(conn, run, after_s, if_due=True)
            ):
                self.report(f"{run}: put back" + (f": {said}" if said and not self._stopping else ""))
        elif code:
            how = f"its process died ({_describe_exit(code)})" + (f": {said}" if said else "")
            self.report(f"{run}: {how}")
            await self._write_with_retry(lambda conn: _requeue_run_after_death(conn, run, steps, deaths, how))
        return stopped

    async def _start_scheduled_run(self, taken: TakenRun, schedule: str, due: int, deaths: int) -> None:
        """Start a run of a schedule whose time has come."""
        what = f"{SCHEDULE_LABEL}{schedule}"
        code, _, said, _ = await self._run_process(taken, what, _START, schedule, str(due))
        if code:
            died = code != TRY_AGAIN and not self._stopping
            self.report(f"{what}: put back: {said or _describe_exit(code)}")
            await self._write_with_retry(
                partial(queue.retry_or_skip_schedule_start, name=schedule, due=due, deaths=deaths + died)
            )

    async def _start_process(
        self,
        label: str,  # noqa: ARG002 - for a queue whose runs have environments of their own
        module: str,
        arguments: tuple[str, ...],
        env: Mapping[str, str],
        streams: Mapping[str, int],
    ) -> Child:
        """`label`: the run, or `SCHEDULE_LABEL` and a name."""
        return await asyncio.to_thread(FORKER.start, module, *arguments, env=env, **streams)

    async def _run_process(
        self, taken: TakenRun, label: str, module: str, *arguments: str
    ) -> tuple[int, bool, str, ProcessIdentity]:
        """Exit code of a process, whether somebody asked it to stop, the last line that it printed, and who it was."""
        env = {**os.environ, "INTERLOCK_HOME": str(self.home), "INTERLOCK_STORE": ""}  # the folder names it
        stdin, lifeline = os.pipe()
        try:
            with tempfile.TemporaryFile() as said:  # a pipe would stay open in what the process leaves behind
                streams = {"stdin": stdin, "stderr": said.fileno()}
                process = await self._start_process(label, module, (*arguments, str(self.home)), env, streams)
                self._driving[label] = process
                self.report(f"{label}: driven by process {process.pid}")
                owner = ProcessIdentity(host_and_pid_namespace(), boot_id(), process.pid, "")
                return (
                    *await self._wait_for_exit_and_forward_stop(process, taken),
                    _last_printed_line(said),
                    owner,
                )
        finally:
            for end in (stdin, lifeline):
                os.close(end)
            self._driving.pop(label, None)

    async def _wait_for_exit_and_forward_stop(self, process: Child, taken: TakenRun) -> tuple[int, bool]:
        deadline, stopped = 0.0, False
        while (code := process.poll()) is None:
            await asyncio.sleep(_LOOK_S)
            if not self._stopping and not stopped and taken.is_stop_requested():
                stopped = True
                process.send_signal(signal.SIGINT)
            if stopped or self._stopping:
                deadline = deadline or time.monotonic() + GRACE_S
                if time.monotonic() > deadline:
                    process.send_signal(signal.SIGKILL)
        return code, stopped

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
                await asyncio.sleep(AGAIN_S)

    def _report_outage(self, error: Exception) -> None:
        if str(error) != self._away:
            self._away = str(error)
            self.report(f"The store doesn't answer: {error}")


def _requeue_run_after_death(conn: Connection, run: str, steps: int, deaths: int, cause: str) -> None:
    """Inside a transaction: put a job for a run whose process died, unless it was cancelled meanwhile."""
    if not queue.can_run_continue(conn, run):
        return
    set_run_error(conn, run, {"type": "died", "message": cause})  # for whoever gives the run up
    before = 0 if queue.has_run_progressed(conn, run, steps) else deaths
    queue.enqueue_run_if_worker_driven(conn, run, AGAIN_S, if_due=True, deaths=before + 1)


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
