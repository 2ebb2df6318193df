"""local_worker: the one worker of a store in a file. It looks for rows that are due, and ends when nothing is.

While it waits it imports nothing of what drives a run: its processes do, forked from one that has imported all.
"""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from interlock.cli.warm.fork_client import Child
from interlock.engine.driver.local_worker import SUBMITTED_VARIABLE, is_older_version, program_version
from interlock.engine.store import Store, make_change_detector, open_reader, queue
from interlock.engine.store.connection import Connection
from interlock.engine.store.leases import read_lease
from interlock.engine.store.rate_limits import release_held_jobs
from interlock.engine.store.runs import read_options
from interlock.engine.store.sqlite import is_schema_newer_than_program
from interlock.engine.store.wakes import TakenJob, Wakes
from interlock.engine.store.worker_file import Bell, WorkerLock, become_worker, find_worker, tell_worker
from interlock.fleet.worker import SCHEDULE_LABEL, STOPPING, Worker
from interlock.services.process.identity import boot_id, is_alive
from interlock.services.secrets.environment import withheld_variable_names

_LOOK_S = 0.1
"""Seconds between two looks whether the store has changed."""
_CLOCK_S = 30.0
"""Seconds between two looks at what is due in any case: limits pass, and clocks are set."""
_HAND_OVER_S = 90.0
"""Seconds that a newer program's worker waits for the end of the one before: what runs stops at its next commit."""
_RUN_BYTES = 512 << 20
"""Memory that a run and its commands are expected to need."""
_OF_WORKER = ("INTERLOCK_HOME", "INTERLOCK_STORE", "INTERLOCK_WORKSPACES", "INTERLOCK_SANDBOX")
"""Variables that a worker decides on, whatever a run's shell had."""
_COLD = "import sys; from importlib import import_module as i; sys.exit(i(sys.argv[1]).main(*sys.argv[2:]))"


def default_concurrency() -> int:
    """Return two runs a core, as most wait for models, as far as memory has room for them."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(1, min(2 * (os.cpu_count() or 1), memory // _RUN_BYTES))


def run_local_worker(
    home: Path, concurrency: int, report: Callable[[str], None], idle_exit_s: float | None
) -> None:
    """Drive runs until SIGTERM or Ctrl-C, or until there was nothing to do for `idle_exit_s`.

    Ends at once if the store has a worker, and takes over from one of an older program.
    """
    Store(home).create_or_migrate()
    own = {name: os.environ[name] for name in withheld_variable_names(os.environ)}
    lock = _become_worker_or_replace_older(home)
    if lock is None:
        tell_worker(home, os.environ.get(SUBMITTED_VARIABLE, ""), own)
        return report("The store has a worker already.")
    os.environ.pop(SUBMITTED_VARIABLE, None)
    asyncio.run(LocalWorker(home, concurrency, report, lock=lock, idle_exit_s=idle_exit_s).run_until_signal())


def stop_local_worker(home: Path) -> int | None:
    """Ask the store's worker to end; returns its process. None: there is none."""
    found = find_worker(home)
    if found is None or not found.pid:
        return None
    os.kill(found.pid, signal.SIGTERM)
    return found.pid


def _become_worker_or_replace_older(home: Path) -> WorkerLock | None:
    mine, until = program_version(), time.monotonic() + _HAND_OVER_S
    asked = False
    while time.monotonic() < until:
        if lock := become_worker(home, sys.executable, mine):
            return lock
        found = find_worker(home)
        if found and not is_older_version(found.version, mine):
            return None
        if found and not asked:
            asked = True
            stop_local_worker(home)
    return None


@dataclass(frozen=True)
class _LocalJob:
    id: int
    attempts: int
    stops: set[int]
    """Jobs that somebody wants to end."""

    def is_stop_requested(self) -> bool:
        return self.id in self.stops


@dataclass
class LocalWorker(Worker):
    lock: WorkerLock = field(kw_only=True)
    idle_exit_s: float | None = field(kw_only=True)
    """Seconds without work, and with nothing due within as many, after which it ends; None: it stays."""
    _tasks: set["asyncio.Task[None]"] = field(default_factory=set["asyncio.Task[None]"])
    _stops: set[int] = field(default_factory=set[int])
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _secrets: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])
    """Run → what its shell had and the store doesn't keep; of no run: what is taken where that is missing."""
    _next_due: float | None = None
    _key_release: "asyncio.Future[None] | None" = None

    async def run_until_signal(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._begin_shutdown, STOPPING)
        bell, detector = Bell(self.home), make_change_detector(self.home)
        asyncio.get_running_loop().add_reader(bell.descriptor, self._take_secrets_and_wake, bell)
        try:
            await self._write_with_retry(self._put_back_what_was_begun)
            await self._take_jobs_until_stopped_or_idle(detector)
            if self._tasks:
                await asyncio.wait(self._tasks)
        finally:
            asyncio.get_running_loop().remove_reader(bell.descriptor)
            bell.close()
            detector.close()
            self.lock.file.close()

    async def _take_jobs_until_stopped_or_idle(self, has_changed: Callable[[], bool]) -> None:
        looked = worked = time.monotonic()
        while not self._stopping:
            now = time.monotonic()
            is_due = self._next_due is not None and self._next_due <= time.time()
            has_room = len(self._tasks) < self.concurrency
            if has_changed() or self._wake.is_set() or now - looked > _CLOCK_S or (is_due and has_room):
                self._wake.clear()
                looked = now
                await self._take_due_jobs()
            worked = now if self._tasks else worked
            if self.idle_exit_s is not None and now - worked > self.idle_exit_s:
                if await self._write_with_retry(self._end_unless_something_is_due):
                    return
                worked = now
            try:
                await asyncio.wait_for(self._wake.wait(), _LOOK_S)
            except TimeoutError:
                continue

    async def _take_due_jobs(self) -> None:
        """Begin what is due, as far as there is room, and note when the next is."""
        if not self.lock.is_in_place(self.home):
            return self._begin_shutdown("The state directory was removed or replaced.")
        while True:
            next_due, stops = await asyncio.to_thread(self._read_next_due_time_and_stops)
            self._stops.clear()
            self._stops.update(stops)
            self._next_due = next_due
            has_room = len(self._tasks) < self.concurrency and not self._stopping
            if not has_room or next_due is None or next_due > time.time():
                return
            taken = await self._write_with_retry(lambda conn: _wakes(conn).take_first_due_job())
            if taken is None:  # what is due waits for the end of an earlier drive
                self._next_due = None
                return
            task = asyncio.ensure_future(self._do_job(taken))
            self._tasks.add(task)
            task.add_done_callback(self._end_task)

    def _read_next_due_time_and_stops(self) -> tuple[float | None, set[int]]:
        with open_reader(self.home) as conn:
            assert conn is not None
            return _wakes(conn).find_next_due_time(), _wakes(conn).list_stop_requests()

    def _end_task(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        self._wake.set()
        if not task.cancelled() and (error := task.exception()):
            self.report(f"A job failed: {error}")

    async def _do_job(self, taken: TakenJob) -> None:
        job, args = _LocalJob(taken.job, taken.attempts, self._stops), taken.args
        if taken.kind == "schedule":
            await self._start_scheduled_run(job, args["schedule"], args["due"], args.get("deaths", 0))
        else:
            model, deaths = args.get("model", ""), args.get("deaths", 0)
            await self._drive_or_give_up_run(job, args["run"], args.get("steps", 0), deaths, model)
        await self._write_with_retry(lambda conn: _end_job(conn, taken.job))

    def _put_back_what_was_begun(self, conn: Connection) -> None:
        """Put back what an earlier worker has begun. It is gone, and with it the processes that it started."""
        earlier = self.lock.earlier
        if earlier and earlier.boot != boot_id():
            _wakes(conn).forget_deaths()
        for found in conn.jobs.list_possibly_abandoned_runs(0):
            lease = read_lease(conn, found.run)
            if found.job is None and lease and lease.held and is_alive(lease.owner) is not False:
                continue  # somebody drives it in a terminal
            queue.requeue_abandoned_run(conn, found)
            self.report(f"{found.run}: goes on")
        queue.requeue_lost_schedule_starts(conn, 0)
        _wakes(conn).release_runs_waiting_for_keys()
        release_held_jobs(conn)

    def _end_unless_something_is_due(self, conn: Connection) -> bool:
        """Give the lock back unless there is work: whoever leaves some after this commit starts another worker."""
        due = _wakes(conn).find_next_due_time()
        if self._tasks or (due is not None and due <= time.time() + (self.idle_exit_s or 0)):
            return False
        self._stopping = True
        self.lock.file.close()
        return True

    def _stop_taking_jobs(self) -> None:
        self.lock.mark_stopping()
        self._wake.set()

    def _is_store_newer(self, conn: Connection) -> bool:
        return is_schema_newer_than_program(conn)

    def _take_secrets_and_wake(self, bell: Bell) -> None:
        for message in bell.read_messages():
            if secrets := message.get("secrets"):
                self._secrets[message.get("run", "")] = secrets
                self._secrets.setdefault("", {}).update(secrets)
                self._key_release = asyncio.ensure_future(
                    self._write_with_retry(lambda conn: _wakes(conn).release_runs_waiting_for_keys())
                )
        self._wake.set()

    async def _start_process(
        self,
        label: str,
        module: str,
        arguments: tuple[str, ...],
        env: Mapping[str, str],
        streams: Mapping[str, int],
    ) -> Child:
        kept = await asyncio.to_thread(self._read_shell_options, label)
        secret = {**self._secrets.get("", {}), **self._secrets.get(label, {})}
        if kept:
            own = {*withheld_variable_names(env), *_OF_WORKER}
            env = {**kept["env"], **{name: env[name] for name in env if name in own}, **secret}
        program = kept.get("program", sys.executable)
        if program == sys.executable or not os.access(program, os.X_OK):
            return await super()._start_process(label, module, arguments, env, streams)
        command = [program, "-P", "-c", _COLD, module, *arguments]
        return subprocess.Popen(command, env=dict(env), start_new_session=True, **streams)  # pyright: ignore

    def _read_shell_options(self, label: str) -> Mapping[str, Any]:
        """Return the environment and the program of the shell that left a run or a schedule; empty: unknown."""
        with open_reader(self.home) as conn:
            assert conn is not None
            schedule = queue.find_schedule(conn, label.removeprefix(SCHEDULE_LABEL))
            if label.startswith(SCHEDULE_LABEL):
                submitted = schedule.options.get("submitted") if schedule else None
            else:
                submitted = read_options(conn, label).get("submitted")
        return submitted if submitted and "env" in submitted else {}


def _wakes(conn: Connection) -> Wakes:
    assert isinstance(conn.jobs, Wakes)
    return conn.jobs


def _end_job(conn: Connection, job: int) -> None:
    """Inside a transaction: what the job drove is over, or was put back."""
    _wakes(conn).end_job(job)
