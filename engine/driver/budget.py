"""budget: what a run, with its agents and subtasks, may use; checked in one transaction before each model call."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from interlock.engine.store.model_calls import UsageLedger
from interlock.engine.store.runs import find_root_task, list_run_and_subtasks
from interlock.services.models.model_table import Prices, request_cost_usd
from interlock.state.clock import unix_time
from interlock.state.deps import Stopped
from interlock.state.messages import ModelCall
from interlock.state.messages import Usage as Tokens
from interlock.state.run import Limits

if TYPE_CHECKING:
    from interlock.engine.store.rate_limits import CallLimiter, Wait

REPLY_TOKENS = 8_192
"""Reserved for the reply on top of the request's own estimate; more than most replies take."""


class BudgetUse(NamedTuple):
    """What a run has used, and what its calls in flight may still use."""

    tokens: int
    usd: float
    turns: int
    agent_turns: int
    """Those of sub-agents."""
    under_way: int
    reserved_tokens: int
    reserved_usd: float
    next_tokens: int
    """Of the model's latest call: the next one takes about as much. Before its first, those of the request."""
    next_usd: float
    is_first: bool
    next_cached: int = 0
    """Input tokens of the next call that the provider's cache still holds."""


_OFF = 30
"""An estimate is off by less than this part of it, once a request of the model was counted (`ModelFacts.counted`)."""
_CACHE_LIVES_S = 240.0
"""Seconds for which providers' caches are sure to hold what was written: their shortest lifetime is 5 minutes."""
_HERE_S = 2.0
"""Seconds for which a process waits for a limit over all workers."""
_NOTHING = BudgetUse(0, 0.0, 0, 0, 0, 0, 0.0, 0, 0.0, False)


@dataclass
class RunBudget:
    """Implements the models service's `Budget`.

    A call is made while what was used, and as much again as the model's latest call took, is within the limit; before
    a model's first call, what its request takes by estimate. If only reservations exceed the limit, a call waits for
    those in flight. The reply may take what is left then; beside others in flight, `REPLY_TOKENS`. So the limit is
    passed only by agents side by side whose replies are longer than that, or by what the estimate is wrong.
    """

    usage: UsageLedger
    limits: Limits
    prices: Callable[[str], Prices | None]
    on_refused: Callable[[str, str], None] = lambda _why, _kind: None
    """Called when the limit is reached, with a message for the user and the kind of error."""
    fleet_limits: "CallLimiter | None" = None
    """The limits over all workers."""
    _settled: asyncio.Event = field(default_factory=asyncio.Event)

    @cached_property
    def _runs_sharing_limits(self) -> list[str]:
        """Runs that share the limits; fixed during a drive: parents wait, and subtasks it starts are driven later."""
        return list_run_and_subtasks(self.usage.conn, find_root_task(self.usage.conn, self.usage.run))

    async def reserve(self, call: ModelCall, agent: str, model: str, tokens: int) -> int | None:
        """Reserve the tokens, and return those left for the reply; None: any.

        Raises `Stopped` if the limit is reached; the call is made once the limit is raised.
        """
        while True:
            wait = None
            with self.usage.transaction():
                used = self._sum_usage(model, tokens) if self._is_limited else _NOTHING
                refusal = self._refusal_message(used, model, agent)
                if not refusal and not self._must_wait(used):
                    wait = self.fleet_limits and self.fleet_limits.reserve_call(call.task, model, tokens)
                    if wait is None:
                        self.usage.add_reservation(call.task, agent, model, tokens)
                        return self._reply_tokens_left(used, model, tokens)
            if wait:
                await self._wait_or_stop_for_fleet_limit(wait, model)
                continue
            if refusal:
                self.on_refused(refusal, "budget")
                raise Stopped
            self._settled.clear()
            await self._settled.wait()

    async def _wait_or_stop_for_fleet_limit(self, wait: "Wait", model: str) -> None:
        """Wait for a limit over all workers: here for a moment, else without a process."""
        assert self.fleet_limits
        if wait.seconds is None:
            self.on_refused(f"{wait.why}. {no_price_message(model)}", "budget")
            raise Stopped
        if wait.seconds > _HERE_S:
            self.fleet_limits.set_job_wait(wait, model)
            self.on_refused(wait.why, wait.run_error["type"])
            raise Stopped
        await asyncio.sleep(wait.seconds)

    @property
    def _is_limited(self) -> bool:
        """Without limits nothing is summed up: it would take longer with each call."""
        limits = self.limits
        return (
            limits.max_session_turns >= 0
            or limits.max_tokens is not None
            or limits.max_budget_usd is not None
        )

    def settle_reservation(self, task: str, usage: Tokens | None = None) -> None:
        """Drop the reservation: the reply is persisted in the next commit, or the call failed unanswered."""
        self.usage.drop_reservation(task)
        if self.fleet_limits:
            self.fleet_limits.correct_estimate(task, usage)
        self._settled.set()

    def forfeit_reservation(self, task: str) -> None:
        """Keep counting the estimate: the call was cut off, so its real usage is unknown."""
        self.usage.mark_reservation_cut_off(task)
        if self.fleet_limits:
            self.fleet_limits.keep_estimate(task)
        self._settled.set()

    def _refusal_message(self, used: BudgetUse, model: str, agent: str) -> str:
        limits, again = self.limits, f"Raise it and go on with: interlock resume {self.usage.run}"
        if (most := limits.max_tokens) is not None and _would_exceed(most, used.tokens, used.next_tokens):
            spent, latest = f"{used.tokens} were used", f"{used.next_tokens}"
            over = _over_budget_message(
                f"{most} tokens", spent, latest, used.tokens >= most, is_first_call=used.is_first
            )
            return f"{over} {again} --max-tokens N"
        if (most_usd := limits.max_budget_usd) is not None:
            if self.prices(model) is None:
                return f"{no_price_message(model)} Go on with: interlock resume {self.usage.run}"
            if _would_exceed(most_usd, used.usd, used.next_usd):
                spent, latest = f"${used.usd:.4f} was spent", f"${used.next_usd:.4f}"
                over = _over_budget_message(
                    f"${most_usd:g}", spent, latest, used.usd >= most_usd, is_first_call=used.is_first
                )
                return f"{over} {again} --max-budget-usd USD"
        # Without sub-agents, the main agent checks its own turns before it asks (`check_limits`).
        if 0 <= limits.max_session_turns <= used.turns and (agent or used.agent_turns):
            return (
                f"The budget of {limits.max_session_turns} turns is used up, those of sub-agents counted. "
                f"{again} --max-session-turns N"
            )
        return ""

    def _must_wait(self, used: BudgetUse) -> bool:
        if not used.under_way:
            return False
        limits = self.limits
        return (
            0 <= limits.max_session_turns <= used.turns + used.under_way
            or (limits.max_tokens is not None and used.tokens + used.reserved_tokens >= limits.max_tokens)
            or (limits.max_budget_usd is not None and used.usd + used.reserved_usd >= limits.max_budget_usd)
        )

    def _sum_usage(self, model: str, tokens: int) -> BudgetUse:
        answered, reserved = (
            self.usage.sum_answered_calls_by_model(self._runs_sharing_limits),
            self.usage.sum_reserved_calls_by_model(self._runs_sharing_limits),
        )
        lost = [calls for calls in reserved if not calls.under_way]
        going = [calls for calls in reserved if calls.under_way]
        latest = next((a for a in answered if a.model == model), None)
        return BudgetUse(
            tokens=sum(a.input_tokens + a.output_tokens for a in answered) + sum(c.tokens for c in lost),
            usd=sum(a.usd + self._cost_upper_bound(a.model, *a.unpriced) for a in answered)
            + sum(self._cost_upper_bound(c.model, c.tokens, 0) for c in lost),
            turns=sum(a.turns for a in answered),
            agent_turns=sum(a.agent_turns for a in answered),
            under_way=sum(c.calls for c in going),
            reserved_tokens=sum(c.tokens + c.calls * REPLY_TOKENS for c in going),
            reserved_usd=sum(
                self._cost_upper_bound(c.model, c.tokens, c.calls * REPLY_TOKENS) for c in going
            ),
            next_tokens=latest.latest_tokens if latest else tokens,
            next_usd=latest.latest_usd if latest else self._estimated_request_cost(model, tokens),
            is_first=latest is None,
            next_cached=latest.latest_cached
            if latest and unix_time() - latest.latest_at < _CACHE_LIVES_S
            else 0,
        )

    def _reply_tokens_left(self, used: BudgetUse, model: str, tokens: int) -> int | None:
        """What the limits leave for the reply to a request of so many tokens."""
        tokens += tokens // _OFF
        rooms: list[float] = []
        if (most := self.limits.max_tokens) is not None:
            rooms.append(most - used.tokens - used.reserved_tokens - tokens)
        if (most_usd := self.limits.max_budget_usd) is not None and (prices := self.prices(model)):
            asked = _split_cached_tokens(tokens, used.next_cached)
            left = most_usd - used.usd - used.reserved_usd - request_cost_usd(prices, asked)
            each = request_cost_usd(prices, Tokens(input=tokens, output=1)) - request_cost_usd(
                prices, Tokens(input=tokens)
            )
            rooms += [left / each] if each else []
        if not rooms:
            return None
        return max(1, int(min(*rooms, REPLY_TOKENS) if used.under_way else min(rooms)))

    def _estimated_request_cost(self, model: str, input_tokens: int) -> float:
        prices = self.prices(model) if self.limits.max_budget_usd is not None else None
        return request_cost_usd(prices, _split_cached_tokens(input_tokens)) if prices else 0.0

    def _cost_upper_bound(self, model: str, input_tokens: int, output_tokens: int) -> float:
        """What calls cost at most whose tokens are only estimated, or that an earlier version recorded."""
        prices = (
            self.prices(model)
            if self.limits.max_budget_usd is not None and (input_tokens or output_tokens)
            else None
        )
        return (
            request_cost_usd(prices[-1:], Tokens(input=input_tokens, output=output_tokens)) if prices else 0.0
        )


def _split_cached_tokens(input_tokens: int, cached_tokens: int = 0) -> Tokens:
    """Return how a request's tokens are priced: what no cache holds may be written to one, where that costs more."""
    cached_tokens = min(cached_tokens, input_tokens)
    return Tokens(input=input_tokens, cached=cached_tokens, written=input_tokens - cached_tokens)


def _would_exceed(limit: float, used: float, next_use: float) -> bool:
    return used >= limit or used + next_use > limit


def _over_budget_message(
    limit: str, spent: str, latest: str, used_up: bool, *, is_first_call: bool = False
) -> str:
    if used_up:
        return f"The budget of {limit} is used up: {spent}."
    if is_first_call:
        return f"The budget of {limit} doesn't cover a call: {spent}, and its request alone takes about {latest}."
    return f"The budget of {limit} doesn't cover another call: {spent}, and the latest call took {latest}."


def no_price_message(model: str) -> str:
    return (
        f"A budget in US dollars needs the price of {model!r}: set models.NAME.price in settings, "
        '{"input": USD, "output": USD} for a million tokens, or give limits.max_tokens instead.'
    )
