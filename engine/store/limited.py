"""limited: the limits over all workers, for the model calls of a run that a worker drives."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from interlock.engine.store.connection import Connection
from interlock.engine.store.limits import Limit, Wait, applying, count, count_alone, wait_for
from interlock.services.models.model_table import Prices, request_cost
from interlock.state.messages import Usage


@dataclass
class FleetLimits:
    """Of one job, with the subtasks that it drives."""

    wait: Wait | None = None
    """What stopped the run."""
    model: str = ""
    """Whose call had to wait."""

    def of_drive(
        self, conn: Connection, user: str, workflow: str, prices: Callable[[str], Prices | None]
    ) -> "LimitedCalls":
        return LimitedCalls(self, conn, {"user": user, "workflow": workflow}, prices)


@dataclass(frozen=True)
class LimitedCalls:
    """Counts a call at its estimate before it is made, and at what it used once that is known."""

    job: FleetLimits
    conn: Connection
    names: Mapping[str, str]
    prices: Callable[[str], Prices | None]
    _open: dict[str, tuple[list[Limit], int, float]] = field(
        default_factory=dict[str, tuple[list[Limit], int, float]]
    )

    def take(self, task: str, model: str, tokens: int) -> Wait | None:
        """Inside a transaction: count the call, unless it must wait."""
        limits = applying(self.conn, {**self.names, "model": model})
        if not limits:
            return None
        in_dollars = [one for one in limits if (one.usd_per_day or one.usd_per_month) is not None]
        prices = self.prices(model) if in_dollars else None
        if in_dollars and prices is None:
            whose = in_dollars[0].whose
            return Wait(whose, f"The limit of {whose} in US dollars needs the price of {model!r}", None)
        usd = request_cost(prices, Usage(input=tokens)) if prices else 0.0
        count_alone(self.conn)
        if wait := wait_for(self.conn, limits, tokens, usd):
            return wait
        count(self.conn, limits, 1, tokens, usd)
        self._open[task] = (limits, tokens, usd)
        return None

    def stop(self, wait: Wait, model: str) -> None:
        """The run stops for this."""
        self.job.wait, self.job.model = wait, model

    def settle(self, task: str, usage: Usage | None) -> None:
        """Count what the call used, with the next commit; None: it wasn't answered."""
        if found := self._open.pop(task, None):
            limits, tokens, usd = found
            spent, cost = (usage.input + usage.output, usage.usd or 0.0) if usage else (0, 0.0)
            count(self.conn, limits, 0, spent - tokens, cost - usd)

    def lose(self, task: str) -> None:
        """Leave it counted at its estimate."""
        self._open.pop(task, None)
