"""fleet: what front ends do with runs that workers drive: look, stop, limit, and copy between stores."""

import re
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from interlock.engine.optional_rooms import load_fleet_entry
from interlock.engine.read import list_runs_by_id
from interlock.engine.store import (
    Store,
    open_reader,
    queue,
    rate_limits,
    read_store_address,
    state_directory_for_store,
)
from interlock.engine.store.connection import NO_SERVER, Connection
from interlock.engine.store.jobs import Job
from interlock.engine.store.queue import Delivery
from interlock.engine.store.runs import new_run_id
from interlock.state.errors import RunError, UserError
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
    def facts(self) -> dict[str, Any]:
        return {**self.limit._asdict(), "used": self.used}


def copy_runs(home: Path, to: str, runs: Sequence[str]) -> list[str]:
    """Copy runs, with their subtasks and files, to the store of this address, or of this state directory.

    Returns the names of all that were copied. Raises `UserError`.
    """
    from interlock.engine.store.run_copies import copy_runs

    # The state directory that keeps a folder for each server.
    base = home.parent.parent if read_store_address(Store(home).path) else home
    other = state_directory_for_store(base, to) if "://" in to else Path(to).expanduser().absolute()
    if other == home:
        raise UserError(f"{to!r} is the store that the runs are in. Name another one with --to.")
    return [*copy_runs(home, other, runs)]


def check_repository_option(text: str, deliver: str) -> dict[str, str]:
    """`Options.repository` of `URL[@REF]`. Raises `UserError`, also if its server says that there is none."""
    from interlock.engine.driver.run_definition import parse_repository_option

    found = parse_repository_option(text, deliver)
    try:
        load_fleet_entry("interlock.repositories", "git", "Runs on a repository need").require_repository(
            Repository(found["url"], found["ref"])
        )
    except RunError as error:
        raise UserError(f"--repo: {error}") from error
    return found


def read_delivery(home: Path, run: str) -> Delivery:
    """What becomes of the changes of a run that is done."""
    with open_reader(home) as conn:
        assert conn is not None
        return queue.delivery(conn, run)


def undelivered_files_line(delivered: Delivery) -> str:
    """The files that nothing delivers, and why; empty: there are none."""
    if not delivered.left_behind:
        return ""
    named = join_up_to([*map(repr, delivered.left_behind)], _NAMED)
    return f"{named} (ignored by git, private or over 20 MB)"


_NAMED = 10


def missing_worker_line(home: Path, queued: Sequence[str]) -> str:
    """`Views.no_worker` of queued runs."""
    if not is_on_server(home):
        return ""
    with open_reader(home) as conn:
        assert conn is not None
        found = conn.jobs.unserved(queued, STALLED_S) if queue.has_queue(conn) else []
    if not found:
        return ""
    name, waits_s = max(found, key=lambda one: one[1])
    who = "A queued run has waited" if len(found) == 1 else f"{len(found)} queued runs wait, the first"
    waited = format_duration(waits_s)
    return f"{who} for {waited}, and no worker is alive. Start one: interlock worker{_worker_flags(name)}"


def _worker_flags(name: str) -> str:
    """What to say to `interlock worker`, so that it serves the queue of this name."""
    if name == GIT_QUEUE:
        return " --workspaces DIR"
    own_host, _, host = name.partition("host:")
    if own_host or not host:
        return f" --queue {name}"
    return "" if name == queue.host_queue() else f" (on the host {host})"


def is_on_server(home: Path) -> bool:
    """Whether the store is a database that workers share."""
    return bool(read_store_address(Store(home).path))


def has_fleet(home: Path) -> bool:
    """Whether workers can drive runs of this store."""
    if not is_on_server(home):
        return False
    with open_reader(home) as conn:
        return conn is not None and queue.has_queue(conn)


def submission_of(priority: int, user: str = "") -> dict[str, Any]:
    """`Options.submitted` of a run that a user starts; empty: this one."""
    from interlock.engine.store.approvals import current_account_name

    return {"user": user or current_account_name(), "priority": priority}


def parse_schedule_option(name: str, cron: str, zone: str) -> dict[str, str]:
    """`Options.schedule`. Raises `UserError` for a name, a cron line or a time zone that can't be used."""
    if name and not _NAME.fullmatch(name):
        raise UserError(f"--name {name!r}: expected letters, digits, - and _, at most 40.")
    queue.next_time(cron, zone, datetime.now(UTC))
    return {"name": name or new_run_id(), "cron": cron, "zone": zone}


def migrate_store(home: Path) -> None:
    """Make the store's tables, or what an older store lacks of them. Raises `StoreError`."""
    Store(home).open()


@dataclass(frozen=True)
class Fleet:
    """Raises `UserError` for a store that is a file."""

    home: Path

    def __post_init__(self) -> None:
        if not is_on_server(self.home):
            raise UserError(NO_SERVER)

    @contextmanager
    def _reading(self) -> Generator[Connection]:
        with open_reader(self.home) as conn:
            yield queue.need_queue(conn)

    @contextmanager
    def _writing(self) -> Generator[Connection]:
        with Store(self.home).writing() as conn:
            yield queue.need_queue(conn)

    def host_queue(self) -> str:
        """The queue of runs whose files are on this host."""
        return queue.host_queue()

    def standing(self) -> tuple[dict[int, float], list[Job], int]:
        """Workers with the seconds since their last heartbeat, jobs, and the number of open requests."""
        with self._reading() as conn:
            return queue.standing(conn)

    def connections(self) -> tuple[int, int]:
        """Connections to the store's server, of everybody who uses it, and how many it takes."""
        with self._reading() as conn:
            return conn.jobs.connections()

    def cancel(self, run: str) -> bool | None:
        """Take back a job that waits, and ask a worker that drives the run to stop; returns whether one does.

        None: there was nothing to stop.
        """
        with self._writing() as conn:
            rate_limits.waits_no_more(conn, run)
            return queue.take_back(conn, run)

    def limits(self) -> list[FleetLimit]:
        with self._reading() as conn:
            return [
                FleetLimit(limit, rate_limits.used_of(conn, limit)) for limit in rate_limits.all_limits(conn)
            ]

    def set_limit(self, kind: str, name: str, figures: Mapping[str, Any]) -> None:
        """Set these figures, for all workers, from their next look on."""
        with self._writing() as conn:
            rate_limits.set_limit(conn, rate_limits.Limit(kind, name, **figures))
            rate_limits.look_again(conn)

    def remove_limit(self, kind: str, name: str) -> None:
        """Raises `UserError` if there is none."""
        with self._writing() as conn:
            if not rate_limits.remove_limit(conn, kind, name):
                raise UserError(f"No limit of {kind} {name!r}. List them with: interlock limits")
            rate_limits.look_again(conn)

    def schedules(self) -> list[dict[str, Any]]:
        """Each schedule, with its next time and how its last run stands."""
        with self._reading() as conn:
            found = queue.listed(conn)
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
        with self._writing() as conn:
            if not queue.remove(conn, name):
                hint = did_you_mean(name, [one.name for one, _ in queue.listed(conn)])
                raise UserError(f"No schedule {name!r}.{hint} List them with: interlock schedule list")
