"""chart_channels: types of channels whose values are states of a chart, and what holds a graph to them.

A node's update is one of the moves that the node declares (`@node(moves=…)`). Charts are imported when a node moves
such a channel.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any

from interlock.state.errors import RunError


@dataclass(frozen=True)
class ObeysChart:
    """A channel's values are states of this chart (`state/charts.py`, CHARTS)."""

    chart: str
    within: str = ""
    """Channel with the state inside a compound state."""
    anew: str = ""
    """Channel whose change begins another life."""
    verdict: str = ""
    """Channel that names a person's verdict: an event of `VERDICTS` counts only in an update that writes its name."""


ApprovalModeState = Annotated[str, ObeysChart("approval-mode", within="plan_phase", verdict="plan_verdict")]
CallState = Annotated[str, ObeysChart("tool-call", anew="attempt")]


@cache
def writable_chart_channels(
    channels: tuple[tuple[str, Any], ...], writes: Sequence[str]
) -> list[tuple[str, ObeysChart]]:
    """The channels with a chart that a node with these writes may move."""
    found = [
        (key, m)
        for key, kind in channels
        for m in getattr(kind, "__metadata__", ())
        if isinstance(m, ObeysChart)
    ]
    return [(key, obeys) for key, obeys in found if {key, obeys.within} & {*writes}]


def strip_chart_metadata(kind: Any) -> Any:
    """The type without its chart: who shares a channel need not repeat it."""
    return (
        kind.__origin__ if any(isinstance(m, ObeysChart) for m in getattr(kind, "__metadata__", ())) else kind
    )


def check_chart_moves(
    where: str,
    channels: Sequence[tuple[str, ObeysChart]],
    moves: tuple[str, ...],
    state: Mapping[str, Any],
    update: Mapping[str, Any],
) -> None:
    """Raises `RunError` for a value that no move of the node leads to from the state's."""
    if not channels:
        return
    from interlock.state.charts import CHARTS, VERDICTS, reachable_states

    for key, obeys in channels:
        if key not in update and obeys.within not in update:
            continue
        begins = obeys.anew in update and update[obeys.anew] != state.get(obeys.anew)
        old, new = (
            "" if begins else _chart_state(key, obeys, state),
            _chart_state(key, obeys, {**state, **update}),
        )
        withheld = VERDICTS - {str(update.get(obeys.verdict))} if obeys.verdict else frozenset[str]()
        if new != old and new not in reachable_states(CHARTS[obeys.chart], old, moves, withheld):
            may = f"It may: {', '.join(moves)}." if moves else "It declares no moves."
            raise RunError(
                f"{where} moved {key!r} from {old!r} to {new!r}, which this node may not. {may} "
                f"All legal moves: interlock diagram {obeys.chart}"
            )


def _chart_state(key: str, obeys: ObeysChart, values: Mapping[str, Any]) -> str:
    from interlock.state.charts import approval_mode_state

    return approval_mode_state(values) if obeys.within else str(values.get(key) or "")
