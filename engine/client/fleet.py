"""fleet: what front ends do with runs that workers drive: look, stop, limit, and copy between stores."""

import re
from collections.abc import Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from interlock.engine.optional_rooms import load_fleet_entry_point
from interlock.engine.options import Options
from interlock.engine.read import list_runs_by_id
from interlock.engine.store import (
    Store,
    open_reader,
    prepare_state_directory_for_store,
    queue,
    rate_limits,
    read_store_address,
)
from interlock.engine.store.connection import Connection
from interlock.engine.store.jobs import Job
from interlock.engine.store.queue import Delivery, Submission, read_submission
from interlock.engine.store.runs import new_run_id, set_run_error
from interlock.state.errors import InterlockError, RunError, UserError
from interlock.state.names import GIT_QUEUE
from interlock.state.repository import Repository
from interlock.state.text import did_you_mean, format_duration, join_up_to

STALLED_S = 12.0
"""Seconds without a heartbeat after which a worker counts as gone."""
_NAME = re.compile(r"[\w-]{1,40}", re.ASCII)


class FleetLimit(NamedTuple):
    limit: rate_limits.Limit
    used: dict[str, float]
    """Figure → what is used of it now; empty for a limit of `*`."""

    @property
    def json_fields(self) -> dict[str, Any]:
        return {**self.limit._asdict(), "used": self.used}


def copy_runs_to_store(home: Path, destination: str, runs: Sequence[str]) -> list[str]:
    """Copy runs, with their subtasks and files, to the store of this address, or of this state directory.

    Returns the names of all that were copied. Raises `UserError`.
    """
    from interlock.engine.store.run_copies import copy_runs_with_subtasks

    # The state directory that keeps a folder for each server.
    base = home.parent.parent if read_store_address(Store(home).path) else home
    other = (
        prepare_state_directory_for_store(base, destination)
        if "://" in destination
        else Path(destination).expanduser().absolute()
    )
    if other == home:
        raise UserError(f"{destination!r} is the store that the runs are in. Name another one with --to.")
    return [*copy_runs_with_subtasks(home, other, runs)]


def parse_and_verify_repository_option(text: str, deliver: str) -> dict[str, str]:
    """`Options.repository` of `URL[@REF]`. Raises `UserError`, also if its server says that there is none."""
    from interlock.engine.driver.run_definition import parse_repository_option

    found = parse_repository_option(text, deliver)
    try:
        load_fleet_entry_point(
            "interlock.repositories", "git", "Runs on a repository need"
        ).require_repository(Repository(found["url"], found["ref"]))
    except RunError as error:
        raise UserError(f"--repo: {error}") from error
    return found


def read_delivery(home: Path, run: str) -> Delivery:
    """What becomes of the changes of a run that is done."""
    with open_reader(home) as conn:
        assert conn is not None
        return queue.read_delivery(conn, run)


def undelivered_files_line(delivery: Delivery) -> str:
    """The files that nothing delivers, and why; empty: there are none."""
    if not delivery.left_behind:
        return ""
    named = join_up_to([*map(repr, delivery.left_behind)], _NAMED)
    return f"{named} (ignored by git, private or over 20 MB)"


_NAMED = 10


def missing_worker_line(home: Path, queued_runs: Sequence[str]) -> str:
    """Return a line on queued runs that wait because no worker is alive; empty if none does."""
    with open_reader(home) as conn:
        found = (
            conn.jobs.list_queues_and_waits_of_unserved_runs(queued_runs, STALLED_S)
            if conn and queue.has_queue(conn)
            else []
        )
    if not found:
        return ""
    name, waits_s = max(found, key=lambda one: one[1])
    who = "A queued run has waited" if len(found) == 1 else f"{len(found)} queued runs wait, the first"
    flags = _worker_flags_for_queue(name) if is_store_on_server(home) else " --idle-exit 10m"
    waited = format_duration(waits_s)
    return f"{who} for {waited}, and no worker is alive. Start one: interlock worker{flags}"


def take_up_due_work(home: Path, env: Mapping[str, str]) -> str:
    """Start the worker of a store in a file if something is due that nobody drives; returns a line on that, or none.

    `env`: of the shell that it inherits. Who never left a run to a worker pays for one look at a file.
    """
    from interlock.engine.driver.local_worker import ensure_local_worker, is_store_local
    from interlock.engine.store.worker_file import find_worker, had_worker

    if not is_store_local(home) or not had_worker(home):
        return ""
    if (worker := find_worker(home)) and worker.version:
        return ""
    with open_reader(home) as conn:
        number = conn.jobs.count_due_jobs() if conn else 0
    if not number:
        return ""
    ensure_local_worker(home, env=env)
    what = "A run that was due goes" if number == 1 else f"{number} runs that were due go"
    return f"{what} on: no worker was running, so one was started."


def overdue_line(home: Path) -> str:
    """Return a line on what is due in a store in a file whose worker doesn't run; empty if nothing is."""
    from interlock.engine.store.worker_file import find_worker, had_worker

    if is_store_on_server(home) or not had_worker(home) or find_worker(home):
        return ""
    with open_reader(home) as conn:
        number = conn.jobs.count_due_jobs() if conn else 0
    if not number:
        return ""
    what = "1 run or schedule is" if number == 1 else f"{number} runs or schedules are"
    return f"{what} due, and no worker runs. Start it: interlock worker --idle-exit 10m"


def _worker_flags_for_queue(queue_name: str) -> str:
    """What to say to `interlock worker`, so that it serves the queue of this name."""
    if queue_name == GIT_QUEUE:
        return " --workspaces DIR"
    own_host, _, host = queue_name.partition("host:")
    if own_host or not host:
        return f" --queue {queue_name}"
    return "" if queue_name == queue.host_queue_name() else f" (on the host {host})"


def is_store_on_server(home: Path) -> bool:
    """Whether the store is a database that workers share."""
    return bool(read_store_address(Store(home).path))


def has_fleet(home: Path) -> bool:
    """Whether workers can drive runs of this store."""
    with open_reader(home) as conn:
        return conn is not None and queue.has_queue(conn)


def submission_options(
    home: Path, priority: int, user: str = "", env: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """`Options.submitted` of a run that a user starts; empty: this one.

    `env`: of the shell that it comes from; None: it keeps none.
    """
    from interlock.engine.driver.local_worker import is_store_local, shell_options
    from interlock.engine.store.approvals import current_account_name

    shell = {} if env is None or not is_store_local(home) else shell_options(env)
    return {"user": user or current_account_name(), "priority": priority, **shell}


def with_host_queue(options: Options) -> Options:
    """Options with which a run is left to the workers of this host. Raises `UserError` without a queue."""
    submitted = submission_options(options.home, 0, env=options.env)
    return replace(options, queue=Fleet(options.home).host_queue_name(), submitted=submitted)


def parse_schedule_option(name: str, cron: str, zone: str) -> dict[str, str]:
    """`Options.schedule`. Raises `UserError` for a name, a cron line or a time zone that can't be used."""
    if name and not _NAME.fullmatch(name):
        raise UserError(f"--name {name!r}: expected letters, digits, - and _, at most 40.")
    queue.next_cron_time(cron, zone, datetime.now(UTC))
    return {"name": name or new_run_id(), "cron": cron, "zone": zone}


def migrate_store(home: Path) -> None:
    """Make the store's tables, or what an older store lacks of them. Raises `StoreError`."""
    Store(home).create_or_migrate()


@dataclass(frozen=True)
class Fleet:
    """What workers drive, of the store of this state directory."""

    home: Path

    @contextmanager
    def _open_for_reading(self) -> Generator[Connection]:
        if not is_store_on_server(self.home):
            self.create_store_if_missing()
        with open_reader(self.home) as conn:
            yield queue.require_queue(conn)

    def create_store_if_missing(self) -> None:
        """Make the tables of a store in a file, if they are missing: it needs no setting up."""
        if not Store(self.home).path.exists():
            Store(self.home).create_or_migrate()

    @contextmanager
    def _open_for_writing(self) -> Generator[Connection]:
        if not is_store_on_server(self.home):
            self.create_store_if_missing()
        with Store(self.home).write_transaction() as conn:
            yield queue.require_queue(conn)

    def host_queue_name(self) -> str:
        """The queue of runs whose files are on this host."""
        return queue.host_queue_name()

    def read_workers_and_jobs(self) -> tuple[dict[int, float], list[Job], int]:
        """Workers with the seconds since their last heartbeat, jobs, and the number of open requests."""
        with self._open_for_reading() as conn:
            return queue.read_workers_jobs_and_request_count(conn)

    def count_connections_and_limit(self) -> tuple[int, int] | None:
        """Connections to the store's server, of everybody who uses it, and how many it takes; None: it is a file."""
        with self._open_for_reading() as conn:
            return conn.jobs.read_connection_count_and_limit()

    def cancel_job(self, run: str) -> bool | None:
        """Take back a job that waits, and ask a worker that drives the run to stop; returns whether one does.

        None: there was nothing to stop.
        """
        with self._open_for_writing() as conn:
            rate_limits.clear_limit_error(conn, run)
            return queue.withdraw_run_from_workers(conn, run)

    def list_limits(self) -> list[FleetLimit]:
        with self._open_for_reading() as conn:
            return [
                FleetLimit(limit, rate_limits.read_current_use(conn, limit))
                for limit in rate_limits.list_limits(conn)
            ]

    def set_limit(self, kind: str, name: str, figures: Mapping[str, Any]) -> None:
        """Set these figures, for all workers, from their next look on."""
        with self._open_for_writing() as conn:
            rate_limits.set_limit(conn, rate_limits.Limit(kind, name, **figures))
            rate_limits.recheck_waiting_jobs(conn)

    def remove_limit(self, kind: str, name: str) -> None:
        """Raises `UserError` if there is none."""
        with self._open_for_writing() as conn:
            if not rate_limits.remove_limit(conn, kind, name):
                raise UserError(f"No limit of {kind} {name!r}. List them with: interlock limits")
            rate_limits.recheck_waiting_jobs(conn)

    def list_schedules(self) -> list[dict[str, Any]]:
        """Each schedule, with its next time and how its last run stands."""
        with self._open_for_reading() as conn:
            found = queue.list_schedules_with_next_times(conn)
        rows = {row.run: row for row in list_runs_by_id(self.home, [one.run for one, _ in found if one.run])}
        return [
            {
                **{
                    name: getattr(one, name)
                    for name in ("name", "cron", "zone", "workflow", "title", "queue", "run", "said")
                },
                "user": one.user,
                "next": at.timestamp() if at else None,
                "status": rows[one.run].status if one.run in rows else "",
            }
            for one, at in found
        ]

    def remove_schedule(self, name: str) -> None:
        """Raises `UserError` if there is none."""
        with self._open_for_writing() as conn:
            if not queue.remove_schedule(conn, name):
                hint = did_you_mean(name, [one.name for one, _ in queue.list_schedules_with_next_times(conn)])
                raise UserError(f"No schedule {name!r}.{hint} List them with: interlock schedule list")


class LimitStop(NamedTuple):
    """A drive that a limit stopped."""

    why: str
    seconds: float | None
    """Until the limit has room; None: it doesn't pass by itself."""
    model: str
    """Whose call had to wait."""


@dataclass(frozen=True)
class DriveSlot:
    """The place in line of one run."""

    home: Path
    run: str

    def enqueue_if_queue_exists(
        self, workflow: str, submitted: Mapping[str, Any], delay_s: float | None
    ) -> bool:
        """`submitted`: `Options.submitted`. `delay_s`: seconds until the limit that stopped it has room.

        False: the store has no queue, and so no limits.
        """
        by = Submission(submitted["user"], submitted["priority"], workflow, "")
        with Store(self.home).write_transaction() as conn:
            return rate_limits.enqueue_server_turn(conn, self.run, by, delay_s)

    def acquire_or_explain_wait_unless_cancelled(self, model: str = "") -> str | None:
        """What the run waits for; empty: it may be driven now; None: somebody cancelled it.

        `model`: whose limit stopped it before.
        """
        with Store(self.home).write_transaction() as conn:
            return rate_limits.take_turn_or_explain_wait(conn, self.run, model)

    def is_waiting_or_driven(self) -> bool:
        """Whether it waits for its turn or for a worker, or is driven by whoever took it."""
        with open_reader(self.home) as conn:
            assert conn is not None
            return rate_limits.has_unfinished_job(conn, self.run)

    def release(self) -> None:
        with Store(self.home).write_transaction() as conn:
            rate_limits.give_back_turn(conn, self.run)

    def is_stop_requested(self) -> bool:
        """Whether somebody asked for the run's end."""
        with open_reader(self.home) as conn:
            assert conn is not None
            return rate_limits.is_stop_requested(conn, self.run)


def release_stale_slots(home: Path, except_runs: Collection[str]) -> None:
    """Give back the turns that an earlier server of this host left, but those of these runs."""
    with Store(home).write_transaction() as conn:
        rate_limits.give_back_other_turns(conn, except_runs)


def with_fleet_limits(options: Options) -> Options:
    """Options of a drive whose model calls count for the limits over all workers."""
    from interlock.engine.store.rate_limits import FleetLimits

    return replace(options, limited=FleetLimits())


def requeue_or_record_limit_stop(options: Options, run: str) -> LimitStop | None:
    """What stopped a drive with `limited` options, if it was a limit; the run's row says so from now on.

    None, too, for a run of workers: they go on with it.
    """
    if options.limited is None or (wait := options.limited.wait) is None:
        return None
    with Store(options.home).write_transaction() as conn:
        if (whose := read_submission(conn, run)).queue:
            rate_limits.requeue_until_limit_allows(conn, run, whose, wait, model=options.limited.model)
            return None
        set_run_error(conn, run, wait.run_error)
    return LimitStop(wait.why, wait.seconds, options.limited.model)


def record_drive_error(home: Path, run: str, error: InterlockError) -> None:
    """Keep in the run's row why it can't be driven, for whoever looks at it."""
    with Store(home).write_transaction() as conn:
        set_run_error(conn, run, {"type": error.kind, "message": str(error)})
