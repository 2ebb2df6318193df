"""charts: the statecharts that runs, approval modes and tool calls obey. State stays plain data; `step` moves it."""

from functools import cache
from typing import Any

from statemachine import State, StateChart

from interlock.state.errors import RunError

Chart = StateChart[Any]


class RunChart(StateChart[Any]):
    """A run: `running` isn't stored, it follows from the lease."""

    catch_errors_as_events = False
    allow_event_without_transition = False

    created = State(initial=True)
    running = State()
    waiting = State()
    interrupted = State()
    done = State()
    failed = State()
    cancelled = State()

    drive = (
        created.to(running)
        | waiting.to(running)
        | interrupted.to(running)
        | cancelled.to(running)
        | failed.to(running)
        | done.to(running)
    )
    park = running.to(waiting)
    lose = running.to(interrupted)
    finish = running.to(done)
    fail = running.to(failed)
    cancel = running.to(cancelled)


class ToolCallChart(StateChart[Any]):
    """One tool call's life (`pipelines.md` §4)."""

    catch_errors_as_events = False
    allow_event_without_transition = False

    validating = State(initial=True)
    awaiting_approval = State()
    scheduled = State()
    executing = State()
    success = State(final=True)
    error = State(final=True)
    cancelled = State(final=True)

    ask = validating.to(awaiting_approval)
    ask_again = awaiting_approval.to(awaiting_approval)
    modify = awaiting_approval.to(validating)
    schedule = validating.to(scheduled) | awaiting_approval.to(scheduled)
    execute = scheduled.to(executing)
    succeed = executing.to(success)
    fail = validating.to(error) | awaiting_approval.to(error) | scheduled.to(error) | executing.to(error)
    cancel = (
        validating.to(cancelled)
        | awaiting_approval.to(cancelled)
        | scheduled.to(cancelled)
        | executing.to(cancelled)
    )


CHARTS: dict[str, type[Chart]] = {"run": RunChart, "tool-call": ToolCallChart}


@cache
def _table(chart: type[Chart]) -> dict[tuple[str, str], str]:
    """(state, event) → state, read off the chart, so that the declaration is the only specification."""
    return {
        (state.id, event.id): transition.target.id
        for state in chart.states
        for transition in state.transitions
        for event in transition.events
        if transition.target is not None
    }


def step(chart: type[Chart], state: str, event: str) -> str:
    """The state after `event`. Raises `RunError` for an event that is illegal in `state`."""
    try:
        return _table(chart)[state, event]
    except KeyError:
        legal = sorted(e for s, e in _table(chart) if s == state)
        raise RunError(
            f"{chart.__name__}: event {event!r} is illegal in {state!r}; legal: {legal}."
        ) from None
