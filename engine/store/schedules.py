"""schedules: runs that workers start at set times, each by a job that is due at the next one."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple, cast
from zoneinfo import ZoneInfo

from interlock.engine.store.connection import Connection
from interlock.engine.store.queue import in_seconds
from interlock.state.errors import ConfigError, UserError

START = "interlock.start"
_DEATHS = 3
_AGAIN_S = 2
_EXPECTED = "Expected minute hour day month weekday, in quotes: '30 2 * * 1-5'; or @hourly, @daily, @weekly."


class Schedule(NamedTuple):
    name: str
    cron: str
    zone: str
    workflow: str
    title: str
    workspace: str
    queue: str
    options: Mapping[str, Any]
    input: Mapping[str, Any]
    run: str = ""
    said: str = ""

    @property
    def user(self) -> str:
        return self.options["submitted"]["user"]

    def after(self, moment: datetime) -> datetime:
        """The next time."""
        return next_time(self.cron, self.zone, moment)


def next_time(cron: str, zone: str, moment: datetime) -> datetime:
    """The first time after this moment; one that a clock shows twice in autumn counts once, unless every hour does.

    Raises `UserError` for a line or a time zone that can't be used.
    """
    try:
        from croniter import CroniterBadDateError, croniter
    except ImportError as error:
        raise ConfigError(
            "Schedules need the extra `fleet`. Install it with: pip install 'interlock-agent[fleet]'"
        ) from error
    try:
        there = ZoneInfo(zone)
    except (ValueError, OSError, LookupError) as error:
        raise UserError(f"No time zone {zone!r}. Expected a name such as UTC or Europe/Berlin.") from error
    fields = cron.split()
    if not (len(fields) == 5 or (len(fields) == 1 and cron.startswith("@"))) or not croniter.is_valid(cron):
        raise UserError(f"{cron!r} isn't a cron line. {_EXPECTED}")
    every_hour = "*" in fields[1 % len(fields)] or croniter.expand(cron)[0][1] == ["*"]  # such as @hourly
    times: Any = croniter(cron, moment.astimezone(there))
    try:
        found = cast(datetime, times.get_next(datetime))
        while found.fold and not every_hour:
            found = cast(datetime, times.get_next(datetime))
    except CroniterBadDateError as error:
        raise UserError(f"The time of {cron!r} never comes. {_EXPECTED}") from error
    return found


def add(conn: Connection, schedule: Schedule) -> datetime:
    """Inside a transaction; returns its first time. Raises `UserError` if the name is taken."""
    if find(conn, schedule.name):
        raise UserError(
            f"There is a schedule {schedule.name!r} already. Remove it, or choose another --name."
        )
    row = {**schedule._asdict(), "options": json.dumps(schedule.options), "input": json.dumps(schedule.input)}
    conn.insert("schedules", row)
    return plan(conn, schedule)


def find(conn: Connection, name: str) -> Schedule | None:
    query = f"select {', '.join(Schedule._fields)} from schedules where name = $1"
    row = conn.execute(query, (name,)).fetchone()
    return _schedule(row) if row else None


def listed(conn: Connection) -> list[tuple[Schedule, datetime | None]]:
    """Every schedule, with its next time; None: it is being started."""
    rows = conn.execute(f"select {', '.join(Schedule._fields)} from schedules order by name").fetchall()
    return [(found := _schedule(row), conn.jobs.due(_lock_of(found.name))) for row in rows]


def _schedule(row: Any) -> Schedule:
    made = Schedule(*row)
    return made._replace(options=json.loads(row[7]), input=json.loads(row[8]))


def remove(conn: Connection, name: str) -> bool:
    """Inside a transaction; returns whether there was one. A run that it started goes on."""
    conn.jobs.remove(_lock_of(name))
    return conn.delete("schedules", {"name": name}).rowcount > 0


def plan(
    conn: Connection, schedule: Schedule, due: int | None = None, after_s: int = 0, deaths: int = 0
) -> datetime:
    """Inside a transaction: put the job for the next time, or for one that is due; returns when it is taken."""
    at = in_seconds(conn, after_s)
    at = schedule.after(at) if due is None else at
    args = {"schedule": schedule.name, "due": due or int(at.timestamp()), "deaths": deaths}
    conn.jobs.put(START, _lock_of(schedule.name), schedule.queue, args, at=at)
    return at


def started(conn: Connection, name: str, run: str, said: str) -> None:
    """Inside a transaction: keep what the time came to, and plan the next, unless the schedule was removed."""
    conn.update("schedules", {"run": run, "said": said}, {"name": name})
    if schedule := find(conn, name):
        plan(conn, schedule)


def try_again(conn: Connection, name: str, due: int, deaths: int) -> None:
    """Inside a transaction: try the time again, but not for ever."""
    schedule = find(conn, name)
    if schedule and deaths < _DEATHS:
        plan(conn, schedule, due, _AGAIN_S, deaths)
    elif schedule:
        started(conn, name, schedule.run, f"The process that starts its runs died {deaths} times.")


def retry_abandoned_starts(conn: Connection, stalled_s: float) -> None:
    """Inside a transaction: try again what workers that are gone were starting, and plan what has no job."""
    for job in conn.jobs.take_abandoned(START, stalled_s):
        try_again(conn, job["schedule"], job["due"], 0)
    for schedule, _ in listed(conn):
        if not conn.jobs.has(_lock_of(schedule.name)):
            plan(conn, schedule)


def _lock_of(name: str) -> str:
    """The lock of the job that starts the runs of a schedule."""
    return f"schedule:{name}"
