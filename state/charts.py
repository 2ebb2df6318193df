"""charts: statecharts for runs, approval modes and tool calls. State stays plain data; `step` advances it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from statemachine import State, StateChart

from interlock.state.errors import RunError

Chart = StateChart[Any]


class RunChart(StateChart[Any]):
    """A run. `running` isn't stored: it follows from the lease; nor is `queued`, which follows from its job."""

    created = State(initial=True)
    queued = State()
    running = State()
    waiting = State()
    interrupted = State()
    done = State()
    failed = State()
    cancelled = State()

    drive = running.from_(created, queued, waiting, interrupted, cancelled, failed, done)
    enqueue = queued.from_(created, waiting, interrupted, cancelled, failed, done)
    park = running.to(waiting)
    lose = running.to(interrupted)
    finish = running.to(done)
    fail = running.to(failed)
    cancel = cancelled.from_(running, queued)


class ToolCallChart(StateChart[Any]):
    """Life cycle of one tool call (`docs/internals.md#statecharts`)."""

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
    schedule = scheduled.from_(validating, awaiting_approval)
    execute = scheduled.to(executing)
    succeed = executing.to(success)
    fail = error.from_(validating, awaiting_approval, scheduled, executing)
    cancel = cancelled.from_(validating, awaiting_approval, scheduled, executing)


class ApprovalModeChart(StateChart[Any]):
    """What calls may do without approval (`docs/internals.md#statecharts`).

    `use_…`: a person switched modes; no node may.
    """

    default = State(initial=True)
    auto_edit = State()
    yolo = State()

    class plan(State.Compound):  # noqa: N801 - the state's name
        """Reads, asks and writes the plan; changes nothing else."""

        requirements = State(initial=True)
        exploration = State()
        design = State()
        review = State()

        read = requirements.to(exploration)
        write_plan = design.from_(requirements, exploration)
        exit_plan_mode = review.from_(requirements, exploration, design)
        reject = review.to(design)
        cancel = review.to(design)
        no_review = review.to(design)

    enter_plan_mode = default.to(plan) | auto_edit.to(plan)
    approve_default = plan.review.to(default)
    approve_auto_edit = plan.review.to(auto_edit)
    carried_out = auto_edit.to(default)
    allow_edits = default.to(auto_edit)
    use_plan = default.to(plan) | auto_edit.to(plan) | yolo.to(plan)
    use_default = default.from_(auto_edit, yolo, plan)
    use_auto_edit = auto_edit.from_(default, yolo, plan)
    use_yolo = yolo.from_(default, auto_edit, plan)


CHARTS: dict[str, type[Chart]] = {
    "run": RunChart,
    "tool-call": ToolCallChart,
    "approval-mode": ApprovalModeChart,
}


def qualified_state_name(state: State) -> str:
    """A state's name; inside a compound state like `plan.design`. The compound itself is never a run's state."""
    return f"{qualified_state_name(state.parent)}.{state.id}" if state.parent is not None else state.id


def initial_leaf_state(state: State) -> State:
    """The state a run is in after entering `state`: a compound state starts at its initial state."""
    inner = next((s for s in state.states if s.initial), None)
    return initial_leaf_state(inner) if inner is not None else state


def _leaf_states(states: Iterable[State]) -> Iterator[State]:
    for state in states:
        if state.states:
            yield from _leaf_states(state.states)
        else:
            yield state


@cache
def _transition_table(chart: type[Chart]) -> dict[tuple[str, str], str]:
    """(state, event) → state, read off the chart so that its declaration is the only specification.

    An event that a state doesn't handle falls through to its compound state.
    """
    found: dict[tuple[str, str], str] = {}
    for leaf in _leaf_states(chart.states):
        at: State | None = leaf
        while at is not None:
            for transition in at.transitions:
                if transition.target is not None:
                    for event in transition.events:
                        found.setdefault(
                            (qualified_state_name(leaf), event.id),
                            qualified_state_name(initial_leaf_state(transition.target)),
                        )
            at = at.parent
    return found


def next_state(chart: type[Chart], state: str, event: str) -> str:
    """The state after `event`. Raises `RunError` if `event` is illegal in `state`."""
    try:
        return _transition_table(chart)[state, event]
    except KeyError:
        legal = sorted(legal_moves(chart, state))
        raise RunError(
            f"{chart.__name__}: event {event!r} is illegal in {state!r}; legal: {legal}."
        ) from None


def legal_moves(chart: type[Chart], state: str) -> dict[str, str]:
    """Event → state, for every event that is legal in this state."""
    return {event: target for (source, event), target in _transition_table(chart).items() if source == state}


REPEATED = "*"
"""Ends a list of events that may happen in any order, and again; `a>b` is one event right after another."""


VERDICTS = frozenset({"approve_default", "approve_auto_edit"})
"""Events of `ApprovalModeChart` that a person's verdict on a plan causes, and that end plan mode."""


@cache
def reachable_states(
    chart: type[Chart], state: str, moves: tuple[str, ...], withheld: frozenset[str] = frozenset()
) -> frozenset[str]:
    """The states that one of the moves leads to: each is an event, or several after each other. From none, as before a
    start: from the initial state, or to it. `withheld`: events that didn't happen."""
    at = state or initial_state(chart)
    found: set[str] = set() if state else {at}
    for move in moves:
        events = move.removesuffix(REPEATED).split()
        if move.endswith(REPEATED):
            events = [event for event in events if withheld.isdisjoint(event.split(">"))]
        elif not withheld.isdisjoint(events):
            continue
        found |= (
            _states_reachable_in_any_order(chart, at, events)
            if move.endswith(REPEATED)
            else _states_after_events(chart, at, events)
        )
    return frozenset(found)


def initial_state(chart: type[Chart]) -> str:
    return qualified_state_name(initial_leaf_state(next(s for s in chart.states if s.initial)))


def _states_after_events(chart: type[Chart], state: str, events: Iterable[str]) -> set[str]:
    at: str | None = state
    for event in events:
        at = _transition_table(chart).get((at, event)) if at is not None else None
    return {at} if at is not None else set()


def _states_reachable_in_any_order(chart: type[Chart], state: str, events: Sequence[str]) -> set[str]:
    found, ahead = {state}, [state]
    while ahead:
        at = ahead.pop()
        following = {
            new for event in events for new in _states_after_events(chart, at, event.split(">"))
        } - found
        found |= following
        ahead += following
    return found


def approval_mode_state(values: Mapping[str, Any]) -> str:
    """The state of `ApprovalModeChart` that a run is in: its mode, and within plan mode the phase."""
    mode = str(values.get("approval_mode") or "")
    return f"plan.{values.get('plan_phase') or 'requirements'}" if mode == "plan" else mode
