"""budget: what a run, with its agents and subtasks, may use; checked in one transaction before each model call."""

import asyncio
import sqlite3
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from interlock.engine.read import first_task, with_subtasks
from interlock.engine.store import insertion
from interlock.services.models.names import provider_of
from interlock.services.sqlite import later, transaction
from interlock.state.deps import Stopped
from interlock.state.messages import ModelCall
from interlock.state.run import Limits
from interlock.state.settings import ModelSettings, Price

REPLY_TOKENS = 8_192
"""Reserved for the reply on top of the request's own estimate; more than most replies take."""

_TURN = "(role = 'main' and finish_reason is not null and problem is null)"
"""An answer that counts as a turn; retries don't."""


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

    conn: sqlite3.Connection
    run: str
    epoch: int
    limits: Limits
    model: ModelSettings
    on_refused: Callable[[str], None] = lambda _: None
    """Called when the limit is reached, with a message for the user."""
    _settled: asyncio.Event = field(default_factory=asyncio.Event)

    @cached_property
    def _task(self) -> list[str]:
        """Runs that share the limits; fixed during a drive: parents wait, and subtasks it starts are driven later."""
        return with_subtasks(self.conn, first_task(self.conn, self.run))

    async def reserve(self, call: ModelCall, agent: str, model: str, tokens: int) -> None:
        """Reserve the tokens. Raises `Stopped` if the limit is reached; the call is made once the limit is raised."""
        while True:
            with transaction(self.conn):
                used = self._used() if self._is_limited else _NOTHING
                refusal = self._refusal(used, model, agent)
                if not refusal and not self._must_wait(used):
                    self._insert(call, agent, model, tokens)
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
        later(self.conn, "delete from reservations where run = ? and task = ? and epoch = ?", self._key(task))
        self._settled.set()

    def lose(self, task: str) -> None:
        """Keep counting the estimate: the call was cut off, so its real usage is unknown."""
        with transaction(self.conn) as conn:
            conn.execute(
                "update reservations set under_way = 0 where run = ? and task = ? and epoch = ?",
                self._key(task),
            )
        self._settled.set()

    def _key(self, task: str) -> tuple[str, str, int]:
        return self.run, task, self.epoch

    def _insert(self, call: ModelCall, agent: str, model: str, tokens: int) -> None:
        row = {"run": self.run, "task": call.task, "epoch": self.epoch, "agent": agent, "model": model}
        row |= {"tokens": tokens, "under_way": 1, "at": time.time()}
        self.conn.execute(*insertion("reservations", row, "insert or replace"))

    def _refusal(self, used: Used, model: str, agent: str) -> str:
        limits, again = self.limits, f"interlock resume {self.run}"
        if limits.max_tokens is not None and used.tokens >= limits.max_tokens:
            return (
                f"The budget of {limits.max_tokens} tokens is used up: {used.tokens} were used. "
                f"Raise it and go on with: {again} --max-tokens N"
            )
        if limits.max_budget_usd is not None:
            if price_of(self.model, model) is None:
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
        of_task = f"run in ({', '.join('?' * len(self._task))})"
        answered = self.conn.execute(
            "select model, sum(input_tokens), sum(output_tokens), "
            f"sum({_TURN}), sum({_TURN} and agent <> '') "
            f"from model_calls where {of_task} group by model",
            self._task,
        ).fetchall()
        # A call an earlier driver left behind was cut off by a kill.
        held = self.conn.execute(
            "select model, sum(tokens), count(*), under_way and run = ? and epoch = ? as open from reservations "
            f"where {of_task} group by model, open",
            (self.run, self.epoch, *self._task),
        ).fetchall()
        lost = [(m, t) for m, t, _, is_open in held if not is_open]
        going = [(m, t, n) for m, t, n, is_open in held if is_open]
        return Used(
            tokens=sum(i + o for _, i, o, *_ in answered) + sum(t for _, t in lost),
            usd=sum(self._cost(m, i, o) for m, i, o, *_ in answered)
            + sum(self._cost(m, t, 0) for m, t in lost),
            turns=sum(t for *_, t, _ in answered),
            agent_turns=sum(a for *_, a in answered),
            under_way=sum(n for *_, n in going),
            reserved_tokens=sum(t + n * REPLY_TOKENS for _, t, n in going),
            reserved_usd=sum(self._cost(m, t, n * REPLY_TOKENS) for m, t, n in going),
        )

    def _cost(self, model: str, input: int, out: int) -> float:
        price = price_of(self.model, model)
        return (input * price.input + out * price.output) / 1e6 if price else 0.0


def price_of(settings: ModelSettings, model: str) -> Price | None:
    """Look up the price by the model's name, one of its aliases, or its provider."""
    prices: Mapping[str, Price] = settings.prices
    names = [model, *(a for a, target in settings.aliases.items() if target == model), provider_of(model)]
    return next((prices[name] for name in names if name in prices), None)


def no_price(model: str) -> str:
    return (
        f"A budget in US dollars needs the price of {model!r}: set model.prices in settings, "
        '{"NAME": {"input": USD, "output": USD}} for a million tokens, or give limits.max_tokens instead.'
    )
