"""decision_loop: from a run that waits to one that doesn't: ask, resume with what was decided, ask again.

The one loop of its kind. A headless command, a session, an MCP client and a replay differ in who is asked (`Decider`),
and in how the run is driven on.
"""

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from interlock.engine.options import Decision, Outcome, Pending
from interlock.engine.read import find_run, list_waiting_requests
from interlock.state.errors import BusyError, UserError

T = TypeVar("T")
_TAKEN_UP_S, _LOOKS = 2.0, 5
"""Seconds, and checks, before a run that somebody else decided on counts as ours to resume."""

DRIVEN_ELSEWHERE = ("running", "queued")
"""Statuses of a run that another process drives, or will."""


class Decider(Protocol):
    """Whoever decides: a person at a terminal, another program, a record."""

    async def decide(self, outcome: Outcome, requests: Sequence[Pending], /) -> Sequence[Decision]:
        """Decisions on these requests. Those without one are left for later; none at all ends the asking."""
        ...

    def on_decisions_refused(self, error: UserError, /) -> None:
        """The decisions couldn't be taken: arguments don't fit, or somebody decided first. What still waits is asked.

        May raise, which ends the asking.
        """
        ...


Resume = Callable[[str, Sequence[Decision]], Awaitable[Outcome]]
Follow = Callable[[str], Awaitable[str]]
"""Shows what another process does with the run; returns the status in which it leaves it."""


async def run_decision_loop(
    home: Path,
    outcome: Outcome,
    decider: Decider,
    resume: Resume,
    follow_other_driver: Follow | None = None,
    postponed: set[str] | None = None,
) -> Outcome:
    """Ask about what waits, and resume, until nothing waits or the rest is left for later.

    `follow_other_driver`: without it, a run that another process has taken up is left to that one. `postponed`: ids of
    requests that aren't asked about again; those that are left for later are added.
    """
    postponed = set() if postponed is None else postponed
    requests: Sequence[Pending] = outcome.pending
    while outcome.drained:
        if outcome.status in DRIVEN_ELSEWHERE and follow_other_driver:
            outcome, requests = (
                replace(outcome, status=await follow_other_driver(outcome.run), pending=[]),
                (),
            )
        if outcome.status != "waiting":
            break
        requests = requests or [request.fields for request in list_waiting_requests(home, outcome.run)]
        requests = [request for request in requests if request["id"] not in postponed]
        decisions = await decider.decide(outcome, requests) if requests else ()
        postponed |= {request["id"] for request in requests} - {decision.approval for decision in decisions}
        if not decisions:
            status = (
                await _poll_status_briefly_for_resume(home, outcome.run) if follow_other_driver else "waiting"
            )
            if status == "waiting":
                break
            if status != "interrupted":  # resumed elsewhere, or already over
                outcome, requests = replace(outcome, status="running"), ()
                continue
        outcome = await _resume_with_decisions(outcome, decisions, decider, resume)
        requests = outcome.pending
    return outcome


async def _resume_with_decisions(
    outcome: Outcome, decisions: Sequence[Decision], decider: Decider, resume: Resume
) -> Outcome:
    warnings = outcome.warnings
    try:
        outcome = await resume(outcome.run, decisions)
    except BusyError:
        return replace(outcome, status="running", pending=[])
    except UserError as error:
        decider.on_decisions_refused(error)
        return replace(outcome, pending=[])
    return replace(outcome, warnings=[*dict.fromkeys([*warnings, *outcome.warnings])])


async def _poll_status_briefly_for_resume(home: Path, run: str) -> str:
    """The run's status, giving whoever decided elsewhere a moment to resume it."""
    import asyncio  # deferred: it costs the fast commands 20 ms

    for _ in range(_LOOKS):
        if (status := find_run(home, run).status) != "interrupted":
            return status
        await asyncio.sleep(_TAKEN_UP_S / _LOOKS)
    return find_run(home, run).status


def run_without_event_loop(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never suspends, without an event loop: each of its drives has its own."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value
    work.close()
    raise RuntimeError("it suspended")
