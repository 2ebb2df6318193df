"""worker: drives runs of its queues, each in a process of its own, and takes over those of workers that are gone."""

import asyncio
import logging
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from interlock.engine.fleet import job as drive_process
from interlock.engine.store import Store, queue
from interlock.engine.store.connection import Connection
from interlock.engine.store.database import address_of
from interlock.state.errors import BusyError, StoreError

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
"""Times that a run's process or worker may die before the run is given up."""
_AGAIN_S = 2
_LOOK_S = 0.05
"""Seconds between two looks whether a process has ended."""


class Process(Protocol):
    """The process of one run."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None: ...

    def send_signal(self, number: int, /) -> None: ...


class Start(Protocol):
    """Starts a module's `main` in a process of its own, which holds `stdin`."""

    def __call__(self, module: str, /, *arguments: str, env: Mapping[str, str], stdin: int) -> Process: ...


class _DiedError(Exception):
    """A run's process died."""


class _Lines(logging.Handler):
    """What the queue and its connections warn of, in a line each."""

    def __init__(self, report: Callable[[str], None]) -> None:
        super().__init__()
        self._report = report

    def emit(self, record: logging.LogRecord) -> None:
        self._report(" ".join(record.getMessage().split()))


@dataclass
class Worker:
    """`report` is given a line for people on each thing that happens; `start` starts the process of a run."""

    home: Path
    queues: Sequence[str]
    concurrency: int
    report: Callable[[str], None]
    start: Start
    _driving: dict[str, Process] = field(default_factory=dict[str, Any])
    _stopping: bool = False
    _seen: dict[queue.Unsure, float] = field(default_factory=dict[queue.Unsure, float])
    """What the sweep found, and since when."""

    async def work(self) -> None:
        """Work until SIGTERM or Ctrl-C: no new jobs then, what runs stops at its next commit and is put back."""
        app = queue.app(address_of(Store(self.home).path))
        from procrastinate import RetryStrategy

        retry = RetryStrategy(max_attempts=_DEATHS, wait=1, retry_exceptions={_DiedError})
        app.task(name=queue.DRIVE, pass_context=True, retry=retry)(self._drive)
        logging.basicConfig(level=logging.WARNING, handlers=[_Lines(self.report)])
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
            self.report("Stopping: no new runs. Each run stops at its next commit and is put back.")
            for process in self._driving.values():
                process.send_signal(signal.SIGTERM)
            worker.cancel()

    async def _drive(self, context: "JobContext", run: str) -> None:
        """A job."""
        from procrastinate.exceptions import JobAborted

        if context.job.attempts >= _DEATHS:
            why = f"Its process or worker died {_DEATHS} times. Look into it, then: interlock resume {run}"
            await self._stored(lambda conn: queue.give_up(conn, run, "died", why))
            self.report(f"{run}: given up: its process or worker died {_DEATHS} times")
            return
        code, aborted = await self._process(context, run)
        if aborted:
            self.report(f"{run}: stopped on request")
            raise JobAborted
        if self._stopping or code == drive_process.TRY_AGAIN:
            # A job of its own, so that deaths alone are counted.
            after_s = 0 if self._stopping else _AGAIN_S
            if await self._stored(lambda conn: queue.hand_to_workers(conn, run, after_s, if_due=True)):
                self.report(f"{run}: put back")
        elif code:
            raise _DiedError(f"the process of run {run!r} died: {code}")

    async def _process(self, context: "JobContext", run: str) -> tuple[int, bool]:
        """Exit code of the run's process, and whether somebody asked it to stop."""
        env = {**os.environ, "INTERLOCK_HOME": str(self.home), "INTERLOCK_STORE": ""}  # the folder names it
        stdin, lifeline = os.pipe()
        try:
            process = await asyncio.to_thread(
                lambda: self.start(drive_process.__name__, run, str(self.home), env=env, stdin=stdin)
            )
            self._driving[run] = process
            self.report(f"{run}: driven by process {process.pid}")
            return await self._ended(process, context)
        finally:
            for end in (stdin, lifeline):
                os.close(end)
            self._driving.pop(run, None)

    async def _ended(self, process: Process, context: "JobContext") -> tuple[int, bool]:
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

    async def _stored(self, act: Callable[[Connection], T]) -> T:
        """Write in a transaction of the store; while it doesn't answer, try again."""

        def write() -> T:
            with closing(Store(self.home).connect()) as conn, conn.transaction():
                return act(conn)

        while True:
            try:
                return await asyncio.to_thread(write)
            except (StoreError, BusyError, *Store(self.home).errors) as error:
                self.report(f"The store doesn't answer ({error}).")
                await asyncio.sleep(_AGAIN_S)

    async def _sweep(self) -> None:
        """Put back what nobody drives: jobs of dead workers, jobs whose run's lease is silent, runs without a job."""
        while True:
            await asyncio.sleep(_SWEEP_S)
            await self._stored(self._take_over)

    def _take_over(self, conn: Connection) -> None:
        now = time.monotonic()
        found = [one for one in queue.unsure(conn, _STALLED_S) if one.run not in self._driving]
        self._seen = {one: self._seen.get(one, now) for one in found}
        for one, since in [*self._seen.items()]:
            if one.stalled or now - since >= _LOST_S:
                del self._seen[one]
                queue.take_over(conn, one)
                self.report(f"{one.run}: nobody drives it; put back")
