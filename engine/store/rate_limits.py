"""rate_limits: what users, workflows and models may use over all workers, and what they used, by the database's clock.

Only a store in PostgreSQL has these tables. A limit of `*` holds for each one that has no limit of its own.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from interlock.engine.store.connection import Connection
from interlock.engine.store.rows import Row, Statement

EACH = "*"
_ONE_COUNT = 0x1A7E_0003
"""Advisory lock of whoever counts: nobody else reads the figures before its commit."""
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
    def whose(self) -> str:
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

    whose: str
    why: str
    seconds: float | None
    """None: it doesn't pass by itself."""

    @property
    def error(self) -> dict[str, str]:
        """As the run's row keeps it."""
        return {"type": "limit", "message": self.why, "of": self.whose}


_FIGURES = tuple(name for name in Limit._fields if name not in ("kind", "name"))
_PERIODS = "(values ('day'), ('month')) as p (period)"
_NOW = "extract(epoch from clock_timestamp())"
_SECOND = f"cast(floor({_NOW}) as bigint)"
_BEGAN = "date_trunc(p.period, clock_timestamp() at time zone 'UTC')"
_SINCE = f"cast(extract(epoch from {_BEGAN}) as bigint)"
_USED = f"""
select u.kind, u.name, p.period,
       cast(extract(epoch from {_BEGAN} + cast('1 ' || p.period as interval)
                    - clock_timestamp() at time zone 'UTC') as double precision),
       coalesce(l.requests, 0), coalesce(l.tokens, 0), coalesce(l.usd, 0.0)
from (values {{}}) as u (kind, name) cross join {_PERIODS}
left join limit_use l on l.kind = u.kind and l.name = u.name and l.period = p.period and l.since = {_SINCE}
union all
select kind, name, 'minute', cast(since + {_KEPT_S} - {_NOW} as double precision), requests, tokens, 0.0
from limit_seconds where (kind, name) in (values {{}}) and since > {_SECOND} - {_KEPT_S}
"""
_ADDED = ", ".join(
    f"{name} = case when excluded.since > limit_use.since then 0 else limit_use.{name} end + excluded.{name}"
    for name in ("requests", "tokens", "usd")
)
_COUNT = f"""
with turn as materialized (select pg_advisory_xact_lock({_ONE_COUNT})), now_used as (
    insert into limit_seconds (kind, name, since, requests, tokens)
    select u.kind, u.name, {_SECOND}, cast($1 as bigint), cast($2 as bigint)
    from turn cross join (values {{}}) as u (kind, name)
    on conflict (kind, name, since) do update
    set requests = limit_seconds.requests + excluded.requests, tokens = limit_seconds.tokens + excluded.tokens
), over as (
    delete from limit_seconds where (kind, name) in (values {{}}) and since < {_SECOND} - {_KEPT_S}
)
insert into limit_use (kind, name, period, since, requests, tokens, usd)
select u.kind, u.name, p.period, {_SINCE}, cast($1 as bigint), cast($2 as bigint), cast($3 as double precision)
from turn cross join (values {{}}) as u (kind, name) cross join {_PERIODS}
on conflict (kind, name, period) do update
set {_ADDED}, since = greatest(limit_use.since, excluded.since)
"""


def set_limit(conn: Connection, limit: Limit) -> None:
    """Inside a transaction: change the figures that are given, and leave the others as they are.

    A figure that had no limit counts from now on.
    """
    given = {name: value for name, value in limit._asdict().items() if value is not None}
    _forget_use(conn, limit)
    conn.insert("limits", given, "replace")


_FIGURE_USE: Mapping[str, tuple[str, Row, Row]] = {
    "requests": ("limit_seconds", {"requests": 0}, {}),
    "tokens": ("limit_seconds", {"tokens": 0}, {}),
    "usd_per_day": ("limit_use", {"usd": 0.0}, {"period": "day"}),
    "usd_per_month": ("limit_use", {"usd": 0.0}, {"period": "month"}),
}


def _forget_use(conn: Connection, limit: Limit) -> None:
    """Forget what was used of figures that get their first limit."""
    known = {one[:2]: one for one in all_limits(conn)}
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


def all_limits(conn: Connection) -> list[Limit]:
    rows = conn.execute(f"select kind, name, {', '.join(_FIGURES)} from limits order by kind desc, name")
    return [Limit(*row) for row in rows]


def applying(conn: Connection, names: Mapping[str, str]) -> list[Limit]:
    """The limits of these: kind → name. Each is named after whom it holds for."""
    pairs = [(kind, name) for kind, known in names.items() for name in (known, EACH)]
    query = f"select kind, name, {', '.join(_FIGURES)} from limits where (kind, name) in ({_places(pairs)})"
    found = {row[:2]: Limit(*row) for row in conn.execute(query, [part for pair in pairs for part in pair])}
    own = [found.get((kind, name)) or found.get((kind, EACH)) for kind, name in names.items()]
    return [limit._replace(name=names[limit.kind]) for limit in own if limit]


def used(conn: Connection, limits: Sequence[Limit]) -> dict[tuple[str, str, str], list[Use]]:
    """Kind, name and period (minute, day, month) → what was used in it; `minute`: of the last 60 s, by second."""
    names = [part for limit in limits for part in limit[:2]]
    places = _places(limits)
    found: dict[tuple[str, str, str], list[Use]] = {}
    for kind, name, period, *use in conn.execute(_USED.format(places, places), names).fetchall():
        found.setdefault((kind, name, period), []).append(Use(*use))
    return found


def count_alone(conn: Connection) -> None:
    """Until the end of the transaction nobody else counts."""
    conn.execute(f"select pg_advisory_xact_lock({_ONE_COUNT})")


def count(conn: Connection, limits: Sequence[Limit], requests: int, tokens: int, usd: float) -> None:
    """Add to what is used of the periods of now."""
    places, names = _places(limits, 4), [part for limit in limits for part in limit[:2]]
    count_use = Statement(_COUNT.format(places, places, places), ("limit_seconds", "limit_use"))
    conn.run(count_use, (requests, tokens, usd, *names))


def wait_for(conn: Connection, limits: Sequence[Limit], tokens: int = 0, usd: float = 0.0) -> Wait | None:
    """What a request of so many tokens must wait for; of several limits the one that lasts longest.

    A request that alone exceeds a limit of tokens is made where nothing else was used of the minute.
    """
    use = used(conn, limits)
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
            if most is not None and (left_s := _until_room(spent, most, more)):
                so_far = total(amount for _, amount in spent)
                waits.append(Wait(limit.whose, _why(limit, f"{_shown(so_far)} of {most:g} {what}"), left_s))
    return max(waits, key=lambda wait: wait.seconds or 0, default=None)


def total(amounts: Iterable[float]) -> float:
    """What was used; a call that used less than its estimate is corrected later, maybe in another period."""
    return max(0, sum(amounts))


def _until_room(spent: Sequence[tuple[float, float]], most: float, more: float) -> float:
    """Seconds until so much more fits below the limit. `spent`: seconds that each amount still counts, and amount."""
    left = sorted(spent)
    waited = 0.0
    while left and _is_full(total(amount for _, amount in left), most, more):
        waited, _ = left.pop(0)
    return waited


def _is_full(spent: float, most: float, more: float) -> bool:
    return spent >= most or (spent > 0 and spent + more > most)


def wait_for_runs(limit: Limit) -> Wait:
    return Wait(
        limit.whose, _why(limit, f"{limit.runs} {'run' if limit.runs == 1 else 'runs'} at once"), None
    )


def _why(limit: Limit, used: str) -> str:
    return f"The limit of {limit.kind} {limit.name!r} leaves no room: {used}. The run continues by itself."


def _shown(figure: float) -> str:
    return f"{figure:.4f}" if isinstance(figure, float) else str(figure)


def _places(pairs: Sequence[object], first: int = 1) -> str:
    """`first`: number of the first parameter."""
    return ", ".join(f"(${place}, ${place + 1})" for place in range(first, first + 2 * len(pairs), 2))
