"""rate_limits: what users, workflows and models may use over all workers, and what they used, by the database's clock.

A limit of `*` holds for each one that has no limit of its own.
"""

import json
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from interlock.engine.store.connection import Connection
from interlock.engine.store.jobs import HELD
from interlock.engine.store.queue import (
    Submission,
    compute_priority_and_steps,
    database_time_after,
    enqueue_run,
    has_queue,
    is_run_due,
    read_submission,
)
from interlock.engine.store.runs import set_run_error
from interlock.engine.store.tables import Row
from interlock.services.models.model_table import Prices, request_cost_usd
from interlock.state.messages import Usage

EACH = "*"
_KEPT_S = 61
"""Seconds that a second counts from its beginning: what came at its end is used for 60 s, too."""


class Limit(NamedTuple):
    """None: no limit."""

    kind: str
    name: str
    runs: int | None = None
    requests: int | None = None
    tokens: int | None = None
    usd_per_day: float | None = None
    usd_per_month: float | None = None

    @property
    def label(self) -> str:
        return f"{self.kind} {self.name}"


class Use(NamedTuple):
    """What was used at one time of a period."""

    left_s: float
    """Seconds until it counts no more."""
    requests: int
    tokens: int
    usd: float


class Wait(NamedTuple):
    """What a run waits for."""

    limit_label: str
    why: str
    seconds: float | None
    """None: it doesn't pass by itself."""

    @property
    def run_error(self) -> dict[str, str]:
        """As the run's row keeps it."""
        return {"type": "limit", "message": self.why, "of": self.limit_label}


_FIGURES = tuple(name for name in Limit._fields if name not in ("kind", "name"))
_USED = """
with wanted (kind, name) as (values {names}),
periods (period, since, until) as (values ('day', {day}, {day} + 86400), ('month', {month}, {next_month}))
select u.kind, u.name, p.period, p.until - {now}, coalesce(l.requests, 0), coalesce(l.tokens, 0), coalesce(l.usd, 0.0)
from wanted u cross join periods p
left join limit_use l on l.kind = u.kind and l.name = u.name and l.period = p.period and l.since = p.since
union all
select kind, name, 'minute', since + {kept_s} - {now}, requests, tokens, 0.0
from limit_seconds where (kind, name) in (values {names}) and since > {second} - {kept_s}
"""
_COUNT_SECOND = """
with wanted (kind, name) as (values {names})
insert into limit_seconds (kind, name, since, requests, tokens)
select kind, name, {second}, cast($1 as bigint), cast($2 as bigint) from wanted where true
on conflict (kind, name, since) do update
set requests = limit_seconds.requests + excluded.requests, tokens = limit_seconds.tokens + excluded.tokens
"""
_FORGET_SECONDS = """
delete from limit_seconds where (kind, name) in (values {names}) and since < {second} - {kept_s}
"""
_ADDED = ", ".join(
    f"{name} = case when excluded.since > limit_use.since then 0 else limit_use.{name} end + excluded.{name}"
    for name in ("requests", "tokens", "usd")
)
_COUNT_PERIODS = f"""
with wanted (kind, name) as (values {{names}}),
periods (period, since) as (values ('day', {{day}}), ('month', {{month}}))
insert into limit_use (kind, name, period, since, requests, tokens, usd)
select kind, name, period, since, cast($1 as bigint), cast($2 as bigint), cast($3 as double precision)
from wanted cross join periods where true
on conflict (kind, name, period) do update set {_ADDED},
since = case when excluded.since > limit_use.since then excluded.since else limit_use.since end
"""


def set_limit(conn: Connection, limit: Limit) -> None:
    """Inside a transaction: change the figures that are given, and leave the others as they are.

    A figure that had no limit counts from now on.
    """
    given = {name: value for name, value in limit._asdict().items() if value is not None}
    _reset_use_of_new_limits(conn, limit)
    conn.insert("limits", given, "replace")


_FIGURE_USE: Mapping[str, tuple[str, Row, Row]] = {
    "requests": ("limit_seconds", {"requests": 0}, {}),
    "tokens": ("limit_seconds", {"tokens": 0}, {}),
    "usd_per_day": ("limit_use", {"usd": 0.0}, {"period": "day"}),
    "usd_per_month": ("limit_use", {"usd": 0.0}, {"period": "month"}),
}


def _reset_use_of_new_limits(conn: Connection, limit: Limit) -> None:
    """Forget what was used of figures that get their first limit."""
    known = {one[:2]: one for one in list_limits(conn)}
    before = known.get(limit[:2], Limit(*limit[:2]))
    for figure, (table, unused, where) in _FIGURE_USE.items():
        if getattr(limit, figure) is not None and getattr(before, figure) is None:
            names = {limit.name}
            if limit.name == EACH:
                rows = conn.execute(f"select distinct name from {table} where kind = $1", (limit.kind,))
                names = {name for (name,) in rows if (limit.kind, name) not in known}
            for name in names:
                conn.update(table, unused, {"kind": limit.kind, "name": name, **where})


def remove_limit(conn: Connection, kind: str, name: str) -> bool:
    """Inside a transaction; returns whether there was one. Set again, it counts from then on."""
    return conn.delete("limits", {"kind": kind, "name": name}).rowcount > 0


def list_limits(conn: Connection) -> list[Limit]:
    rows = conn.execute(f"select kind, name, {', '.join(_FIGURES)} from limits order by kind desc, name")
    return [Limit(*row) for row in rows]


def list_applicable_limits(conn: Connection, names_by_kind: Mapping[str, str]) -> list[Limit]:
    """The limits of these: kind → name. Each is named after whom it holds for."""
    pairs = [(kind, name) for kind, known in names_by_kind.items() for name in (known, EACH)]
    places = _pair_placeholders(pairs)
    query = f"select kind, name, {', '.join(_FIGURES)} from limits where (kind, name) in (values {places})"
    found = {row[:2]: Limit(*row) for row in conn.execute(query, [part for pair in pairs for part in pair])}
    own = [found.get((kind, name)) or found.get((kind, EACH)) for kind, name in names_by_kind.items()]
    return [limit._replace(name=names_by_kind[limit.kind]) for limit in own if limit]


def read_limit_use(conn: Connection, limits: Sequence[Limit]) -> dict[tuple[str, str, str], list[Use]]:
    """Kind, name and period (minute, day, month) → what was used in it; `minute`: of the last 60 s, by second."""
    names = [part for limit in limits for part in limit[:2]]
    sql = _format_sql(conn, _USED, _pair_placeholders(limits))
    found: dict[tuple[str, str, str], list[Use]] = {}
    for kind, name, period, *use in conn.execute(sql, names).fetchall():
        found.setdefault((kind, name, period), []).append(Use(*use))
    return found


def add_limit_use(conn: Connection, limits: Sequence[Limit], requests: int, tokens: int, usd: float) -> None:
    """Add to what is used of the periods of now."""
    names = [part for limit in limits for part in limit[:2]]
    _lock_counts(conn)
    for sql, values, table in (
        (_COUNT_SECOND, (requests, tokens), "limit_seconds"),
        (_FORGET_SECONDS, (), "limit_seconds"),
        (_COUNT_PERIODS, (requests, tokens, usd), "limit_use"),
    ):
        places = _pair_placeholders(limits, len(values) + 1)
        conn.run_write_statement(_format_sql(conn, sql, places), (*values, *names), (table,))


def _lock_counts(conn: Connection) -> None:
    """With the next commit: nobody else reads or writes what was used before that."""
    if lock := conn.dialect.lock_counts:
        conn.run_write_statement(lock, (), ("limit_seconds",))


def _format_sql(conn: Connection, sql: str, names: str) -> str:
    return sql.format(names=names, kept_s=_KEPT_S, **conn.dialect._asdict())


def find_request_wait(
    conn: Connection, limits: Sequence[Limit], tokens: int = 0, usd: float = 0.0
) -> Wait | None:
    """What a request of so many tokens must wait for; of several limits the one that lasts longest.

    A request that alone exceeds a limit of tokens is made where nothing else was used of the minute.
    """
    use = read_limit_use(conn, limits)
    waits: list[Wait] = []
    for limit in limits:
        for most, period, figure, more, what in (
            (limit.requests, "minute", "requests", 1, "requests a minute"),
            (limit.tokens, "minute", "tokens", tokens, "tokens a minute"),
            (limit.usd_per_day, "day", "usd", usd, "US dollars a day"),
            (limit.usd_per_month, "month", "usd", usd, "US dollars a month"),
        ):
            spent = [
                (one.left_s, getattr(one, figure)) for one in use.get((limit.kind, limit.name, period), ())
            ]
            if most is not None and (left_s := _seconds_until_room(spent, most, more)):
                so_far = non_negative_sum(amount for _, amount in spent)
                waits.append(
                    Wait(
                        limit.label,
                        _wait_reason(limit, f"{_format_figure(so_far)} of {most:g} {what}"),
                        left_s,
                    )
                )
    return max(waits, key=lambda wait: wait.seconds or 0, default=None)


def non_negative_sum(amounts: Iterable[float]) -> float:
    """What was used; a call that used less than its estimate is corrected later, maybe in another period."""
    return max(0, sum(amounts))


def _seconds_until_room(spent: Sequence[tuple[float, float]], maximum: float, needed: float) -> float:
    """Seconds until so much more fits below the limit. `spent`: seconds that each amount still counts, and amount."""
    left = sorted(spent)
    waited = 0.0
    while left and _would_exceed_limit(non_negative_sum(amount for _, amount in left), maximum, needed):
        waited, _ = left.pop(0)
    return waited


def _would_exceed_limit(spent: float, maximum: float, needed: float) -> bool:
    return spent >= maximum or (spent > 0 and spent + needed > maximum)


def _wait_reason(limit: Limit, used: str) -> str:
    return f"The limit of {limit.kind} {limit.name!r} leaves no room: {used}. The run continues by itself."


def _format_figure(figure: float) -> str:
    return f"{figure:.4f}" if isinstance(figure, float) else str(figure)


def _pair_placeholders(pairs: Sequence[object], first: int = 1) -> str:
    """`first`: number of the first parameter."""
    return ", ".join(f"(${place}, ${place + 1})" for place in range(first, first + 2 * len(pairs), 2))


@dataclass
class FleetLimits:
    """Of one job, with the subtasks that it drives."""

    wait: Wait | None = None
    """What stopped the run."""
    model: str = ""
    """Whose call had to wait."""

    def make_call_limiter(
        self, conn: Connection, user: str, workflow: str, prices: Callable[[str], Prices | None]
    ) -> "CallLimiter":
        return CallLimiter(self, conn, {"user": user, "workflow": workflow}, prices)


@dataclass(frozen=True)
class CallLimiter:
    """Counts a call at its estimate before it is made, and at what it used once that is known."""

    job: FleetLimits
    conn: Connection
    names: Mapping[str, str]
    prices: Callable[[str], Prices | None]
    _open: dict[str, tuple[list[Limit], int, float]] = field(
        default_factory=dict[str, tuple[list[Limit], int, float]]
    )

    def reserve_call(self, task: str, model: str, tokens: int) -> Wait | None:
        """Inside a transaction: count the call, unless it must wait."""
        limits = list_applicable_limits(self.conn, {**self.names, "model": model})
        if not limits:
            return None
        in_dollars = [one for one in limits if (one.usd_per_day or one.usd_per_month) is not None]
        prices = self.prices(model) if in_dollars else None
        if in_dollars and prices is None:
            whose = in_dollars[0].label
            return Wait(whose, f"The limit of {whose} in US dollars needs the price of {model!r}", None)
        usd = request_cost_usd(prices, Usage(input=tokens)) if prices else 0.0
        _lock_counts(self.conn)
        if wait := find_request_wait(self.conn, limits, tokens, usd):
            return wait
        add_limit_use(self.conn, limits, 1, tokens, usd)
        self._open[task] = (limits, tokens, usd)
        return None

    def set_job_wait(self, wait: Wait, model: str) -> None:
        """The run stops for this."""
        self.job.wait, self.job.model = wait, model

    def correct_estimate(self, task: str, usage: Usage | None) -> None:
        """Count what the call used, with the next commit; None: it wasn't answered."""
        if found := self._open.pop(task, None):
            limits, tokens, usd = found
            spent, cost = (usage.input + usage.output, usage.usd or 0.0) if usage else (0, 0.0)
            add_limit_use(self.conn, limits, 0, spent - tokens, cost - usd)

    def keep_estimate(self, task: str) -> None:
        """Leave it counted at its estimate."""
        self._open.pop(task, None)


def admit_or_requeue_job(conn: Connection, job: int, run: str, deaths: int, model: str) -> str:
    """Inside a transaction: let a job drive its run, or put the run back until a limit has room.

    Returns what it waits for; empty: it drives. `model`: whose limit the run waited for; empty: for none.
    """
    whose = read_submission(conn, run)
    names = {"user": whose.user, "workflow": whose.workflow, **({"model": model} if model else {})}
    limits = list_applicable_limits(conn, names)
    if not is_run_due(conn, run):
        return ""
    if wait := find_job_wait(conn, limits, job):
        requeue_until_limit_allows(conn, run, whose, wait, deaths, model)
        return wait.why
    conn.jobs.mark_admitted(job)
    return ""


def find_job_wait(conn: Connection, limits: list[Limit], job: int) -> Wait | None:
    """What a job must wait for."""
    full = (
        one
        for one in limits
        if one.runs is not None and conn.jobs.count_admitted_jobs(one.kind, one.name, job) >= one.runs
    )
    if first := next(full, None):
        why = _wait_reason(first, f"{first.runs} {'run' if first.runs == 1 else 'runs'} at once")
        return Wait(first.label, why, None)
    return find_request_wait(conn, limits) if limits else None


def requeue_until_limit_allows(
    conn: Connection, run: str, submission: Submission, wait: Wait, deaths: int = 0, model: str = ""
) -> None:
    """Inside a transaction: let no worker take the run before the limit has room."""
    set_run_error(conn, run, wait.run_error)
    if wait.seconds is None:
        enqueue_run(conn, run, f"{HELD}{wait.limit_label}", deaths=deaths, model=model)
    else:
        enqueue_run(conn, run, submission.queue, after_s=int(wait.seconds) + 1, deaths=deaths, model=model)


def clear_limit_error(conn: Connection, run: str) -> None:
    """Inside a transaction: the run, which may have no work left but a prompt, waits for no limit any more."""
    row = conn.execute("select error from runs where run = $1", (run,)).fetchone()
    if row and row[0] and json.loads(row[0])["type"] == "limit":
        set_run_error(conn, run, None)


def end_job_admission(conn: Connection, job: int) -> None:
    """Inside a transaction: what the job drove is driven no more; whoever waited for that may go on."""
    if conn.jobs.unmark_admitted(job):
        release_held_jobs(conn)


def release_held_jobs(conn: Connection) -> None:
    """Inside a transaction: let workers take the jobs that waited for runs to end, as far as there is room."""
    for held in conn.jobs.list_held_queues():
        kind, _, name = held.removeprefix(HELD).partition(" ")
        limit = next(iter(list_applicable_limits(conn, {kind: name})), None)
        room = (
            None
            if limit is None or limit.runs is None
            else max(0, limit.runs - conn.jobs.count_admitted_jobs(limit.kind, limit.name))
        )
        for run in conn.jobs.release_jobs_of_queue(held, room):
            set_run_error(conn, run, None)


def recheck_waiting_jobs(conn: Connection) -> None:
    """Inside a transaction, after a change of limits: let every job that waits for one look whether it must."""
    release_held_jobs(conn)
    conn.jobs.make_limit_delayed_jobs_due()


def read_current_use(conn: Connection, limit: Limit) -> dict[str, float]:
    """What is used now of each figure that is limited."""
    if limit.name == EACH:
        return {}
    use = read_limit_use(conn, [limit])
    minute, day, month = (use.get((limit.kind, limit.name, p), []) for p in ("minute", "day", "month"))
    found: dict[str, float] = {
        "runs": conn.jobs.count_admitted_jobs(limit.kind, limit.name),
        "requests": non_negative_sum(one.requests for one in minute),
        "tokens": non_negative_sum(one.tokens for one in minute),
        "usd_per_day": non_negative_sum(one.usd for one in day),
        "usd_per_month": non_negative_sum(one.usd for one in month),
    }
    return {name: figure for name, figure in found.items() if getattr(limit, name) is not None}


def server_queue_name() -> str:
    """Where the turns of this host's servers stand."""
    return f"server:{os.uname().nodename}"


def enqueue_server_turn(
    conn: Connection, run: str, submission: Submission, after_s: float | None = None
) -> bool:
    """Inside a transaction: line up; nothing changes if the run stands there already.

    `submission`: of a run that is to come, or keeps nobody. `after_s`: seconds until the limit that stopped it has
    room. False: the store has no queue, and so no limits.
    """
    if not has_queue(conn):
        return False
    if conn.jobs.find_server_turn(run):
        return True
    if conn.execute("select 1 from runs where run = $1", (run,)).fetchone():
        kept = read_submission(conn, run)
        submission = kept if kept.user else submission
    server = server_queue_name()
    priority, _ = compute_priority_and_steps(conn, run, submission, server)
    args: dict[str, Any] = {
        "run": run,
        "user": submission.user,
        "workflow": submission.workflow,
        "server": server,
    }
    at = None
    if after_s is not None:
        args |= {"waits": 1}  # a change of limits lets it look at once
        at = database_time_after(conn, after_s)
    conn.jobs.enqueue_job_unless_waiting("run" if at is None else "limit", run, server, args, priority, at)
    return True


def take_turn_or_explain_wait(conn: Connection, run: str, model: str) -> str | None:
    """Inside a transaction: let the run be driven; returns what it waits for; empty: for nothing.

    None: somebody cancelled the run. `model`: whose limit stopped it before.
    """
    turn = conn.jobs.find_server_turn(run)
    if turn is None:
        return None
    if turn.is_taken:
        return ""
    if turn.is_early:
        return "The limit that stopped it has no room yet."
    names = {"user": turn.user, "workflow": turn.workflow, **({"model": model} if model else {})}
    if wait := find_job_wait(conn, list_applicable_limits(conn, names), turn.job):
        if wait.seconds is None and not turn.queue.startswith(HELD):
            conn.jobs.move_to_held_queue(turn.job, f"{HELD}{wait.limit_label}")
        _record_wait_if_changed(conn, run, wait)
        return wait.why
    if turn.queue.startswith(HELD):
        release_held_jobs(conn)  # takes the turns of those who are first in line
        now = conn.jobs.find_server_turn(run)
        return "" if now and now.is_taken else "Others are first in line."
    conn.jobs.mark_turn_taken(turn.job)
    set_run_error(conn, run, None)
    return ""


def _record_wait_if_changed(conn: Connection, run: str, wait: Wait) -> None:
    """What the run waits for, once: every look would be a change."""
    kept = conn.execute("select error from runs where run = $1", (run,)).fetchone()
    if kept and (not kept[0] or json.loads(kept[0]) != wait.run_error):
        set_run_error(conn, run, wait.run_error)


def give_back_turn(conn: Connection, run: str) -> None:
    """Inside a transaction: whoever waited for that may go on."""
    if has_queue(conn) and conn.jobs.remove_server_turn(run):
        release_held_jobs(conn)


def give_back_other_turns(conn: Connection, except_runs: Collection[str]) -> None:
    """Inside a transaction: give back what this host's servers left, except the turns of these runs."""
    for run in conn.jobs.list_runs_of_server(server_queue_name()) if has_queue(conn) else ():
        if run not in except_runs:
            give_back_turn(conn, run)


def has_unfinished_job(conn: Connection, run: str) -> bool:
    return has_queue(conn) and conn.jobs.has_unfinished_job(run)


def is_stop_requested(conn: Connection, run: str) -> bool:
    """Whether somebody asked for the end of a run that a server drives."""
    return has_queue(conn) and conn.jobs.is_stop_requested(run)
