"""budget: what a run, with its agents and subtasks, may use; checked in one transaction before each model call."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from interlock.engine.store.lineage import first_task, with_subtasks
from interlock.engine.store.usage import Usage
from interlock.services.models.known import known
from interlock.services.models.names import names_of
from interlock.state.deps import Stopped
from interlock.state.messages import ModelCall
from interlock.state.run import Limits
from interlock.state.settings import ModelSettings, Price

REPLY_TOKENS = 8_192
"""Reserved for the reply on top of the request's own estimate; more than most replies take."""


class Used(NamedTuple):
    """What a run has used, and what its calls in flight may still use."""

    tokens: int
    usd: float
    turns: int
    agent_turns: int
    """Those of sub-agents."""
    under_way: int
    reserved_tokens: int
    reserved_usd: float


_NOTHING = Used(0, 0.0, 0, 0, 0, 0, 0.0)


@dataclass
class RunBudget:
    """Implements the models service's `Budget`.

    A call is made while used plus reserved is below the limit; if only reservations exceed it, it waits for the calls
    in flight. So the limit is overshot by one reply at most, however many agents there are.
    """

    usage: Usage
    limits: Limits
    model: ModelSettings
    on_refused: Callable[[str], None] = lambda _: None
    """Called when the limit is reached, with a message for the user."""
    _settled: asyncio.Event = field(default_factory=asyncio.Event)

    @cached_property
    def _task(self) -> list[str]:
        """Runs that share the limits; fixed during a drive: parents wait, and subtasks it starts are driven later."""
        return with_subtasks(self.usage.conn, first_task(self.usage.conn, self.usage.run))

    async def reserve(self, call: ModelCall, agent: str, model: str, tokens: int) -> None:
        """Reserve the tokens. Raises `Stopped` if the limit is reached; the call is made once the limit is raised."""
        while True:
            with self.usage.transaction():
                used = self._used() if self._is_limited else _NOTHING
                refusal = self._refusal(used, model, agent)
                if not refusal and not self._must_wait(used):
                    self.usage.reserve(call.task, agent, model, tokens)
                    return
            if refusal:
                self.on_refused(refusal)
                raise Stopped
            self._settled.clear()
            await self._settled.wait()

    @property
    def _is_limited(self) -> bool:
        """Without limits nothing is summed up: it would take longer with each call."""
        limits = self.limits
        return (
            limits.max_session_turns >= 0
            or limits.max_tokens is not None
            or limits.max_budget_usd is not None
        )

    def settle(self, task: str) -> None:
        """Drop the reservation: the reply is persisted in the next commit, or the call failed unanswered."""
        self.usage.settle(task)
        self._settled.set()

    def lose(self, task: str) -> None:
        """Keep counting the estimate: the call was cut off, so its real usage is unknown."""
        self.usage.lose(task)
        self._settled.set()

    def _refusal(self, used: Used, model: str, agent: str) -> str:
        limits, again = self.limits, f"interlock resume {self.usage.run}"
        if limits.max_tokens is not None and used.tokens >= limits.max_tokens:
            return (
                f"The budget of {limits.max_tokens} tokens is used up: {used.tokens} were used. "
                f"Raise it and go on with: {again} --max-tokens N"
            )
        if limits.max_budget_usd is not None:
            if price_of(self.model, model, most=True) is None:
                return f"{no_price(model)} Go on with: {again}"
            if used.usd >= limits.max_budget_usd:
                return (
                    f"The budget of ${limits.max_budget_usd:g} is used up: ${used.usd:.4f} was spent. "
                    f"Raise it and go on with: {again} --max-budget-usd USD"
                )
        # Without sub-agents, the main agent checks its own turns before it asks (`check_limits`).
        if 0 <= limits.max_session_turns <= used.turns and (agent or used.agent_turns):
            return (
                f"The budget of {limits.max_session_turns} turns is used up, those of sub-agents counted. "
                f"Raise it and go on with: {again} --max-session-turns N"
            )
        return ""

    def _must_wait(self, used: Used) -> bool:
        if not used.under_way:
            return False
        limits = self.limits
        return (
            0 <= limits.max_session_turns <= used.turns + used.under_way
            or (limits.max_tokens is not None and used.tokens + used.reserved_tokens >= limits.max_tokens)
            or (limits.max_budget_usd is not None and used.usd + used.reserved_usd >= limits.max_budget_usd)
        )

    def _used(self) -> Used:
        answered, reserved = self.usage.answered(self._task), self.usage.reserved(self._task)
        lost = [calls for calls in reserved if not calls.under_way]
        going = [calls for calls in reserved if calls.under_way]
        return Used(
            tokens=sum(a.input_tokens + a.output_tokens for a in answered) + sum(c.tokens for c in lost),
            usd=sum(self._cost(a.model, a.input_tokens, a.output_tokens) for a in answered)
            + sum(self._cost(c.model, c.tokens, 0) for c in lost),
            turns=sum(a.turns for a in answered),
            agent_turns=sum(a.agent_turns for a in answered),
            under_way=sum(c.calls for c in going),
            reserved_tokens=sum(c.tokens + c.calls * REPLY_TOKENS for c in going),
            reserved_usd=sum(self._cost(c.model, c.tokens, c.calls * REPLY_TOKENS) for c in going),
        )

    def _cost(self, model: str, input: int, out: int) -> float:
        if self.limits.max_budget_usd is None:
            return 0.0
        price = price_of(self.model, model, most=True)
        return (input * price.input + out * price.output) / 1e6 if price else 0.0


def price_of(settings: ModelSettings, model: str, *, most: bool = False) -> Price | None:
    """Look up the price by the model's name, one of its aliases, or its provider, else in the table of models.

    `most`: that of the longest requests, where they cost more.
    """
    prices: Mapping[str, Price] = settings.prices
    own = next((prices[name] for name in names_of(settings, model) if name in prices), None)
    return own or (known(model).most if most else known(model).price)


def no_price(model: str) -> str:
    return (
        f"A budget in US dollars needs the price of {model!r}: set model.prices in settings, "
        '{"NAME": {"input": USD, "output": USD}} for a million tokens, or give limits.max_tokens instead.'
    )
