"""charted: types of channels whose values are states of a chart; a graph commits no other move of them."""

from dataclasses import dataclass
from typing import Annotated


@dataclass(frozen=True)
class Obeys:
    """A channel's values are states of this chart (`state/charts.py`, CHARTS)."""

    chart: str
    within: str = ""
    """Channel with the state inside a compound state."""
    anew: str = ""
    """Channel whose change begins another life."""


ApprovalModeState = Annotated[str, Obeys("approval-mode", within="plan_phase")]
CallState = Annotated[str, Obeys("tool-call", anew="attempt")]
