"""backoff: how long to wait before a request is made again (`pipelines.md` §2)."""

import time
from dataclasses import dataclass, field
from random import Random

from interlock.state.errors import ModelError

ATTEMPTS = 10
"""Connection attempts in all (gemini-cli: 10)."""
PATIENCE_S = 150.0
"""After so long no further attempt begins; with what the last one may take (a quarter of a stall) it is 3 minutes."""
_LONGEST_S = 60.0
"""A server that asks for a longer delay isn't waited for."""
_START_S, _FACTOR, _MAX_S, _JITTER = 5.0, 2.0, 30.0, 0.3
"""gemini-cli's constants."""


@dataclass(frozen=True)
class Backoff:
    """`scale` shortens every delay, the server's too; `random` can be seeded."""

    scale: float = 1.0
    random: Random = field(default_factory=Random)
    patience_s: float = PATIENCE_S

    def delay_s(self, failures: int, error: ModelError) -> float:
        """Seconds to wait after so many failures in a row (1 or more)."""
        if error.retry_after_s is not None:
            return error.retry_after_s * self.scale
        base = min(_MAX_S, _START_S * _FACTOR ** (failures - 1))
        return base * (1 + self.random.uniform(-_JITTER, _JITTER)) * self.scale

    def refusal(self, error: ModelError, failures: int, elapsed_s: float, now: float) -> str:
        """Why it isn't worth to wait for another attempt, and when to come back; empty: it is. `now` is Unix time."""
        asked_s = error.retry_after_s or 0.0
        if asked_s > _LONGEST_S:
            back = time.strftime("%Y-%m-%d %H:%M", time.localtime(now + asked_s))
            return f"It asks to wait {_spoken(asked_s)}; from {back} on: interlock resume latest"
        if elapsed_s > self.patience_s:
            return (
                f"Given up after {failures} attempts in {_spoken(elapsed_s)}; later: interlock resume latest"
            )
        return ""


def _spoken(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:.1f} hours"
