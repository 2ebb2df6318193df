"""_judging: level 3: what a model's judgement means."""

import math
from typing import NamedTuple

from interlock.state.loop_check import CONFIDENCE, Judgement


class Judged(NamedTuple):
    loop: bool
    interval: int
    """Turns until the next look."""


def judged(judgement: Judgement, interval: int) -> Judged:
    """A loop needs both models, unless the stronger one is unavailable. A model that failed has seen no loop."""
    confidence = judgement["confidence"]
    if confidence is not None and confidence >= CONFIDENCE:
        if "double" not in judgement:
            return Judged(True, interval)
        confidence = judgement["double"]
    if confidence is None:
        return Judged(False, interval)
    if confidence >= CONFIDENCE:
        return Judged(True, interval)
    return Judged(False, math.floor(5 + 10 * (1 - confidence) + 0.5))
