"""backoff: how long to wait before a request is made again (`pipelines.md` §2)."""

from dataclasses import dataclass, field
from random import Random

from interlock.state.errors import ModelError

ATTEMPTS = 10
"""Connection attempts in all (gemini-cli: 10)."""
_START_S, _FACTOR, _MAX_S, _JITTER = 5.0, 2.0, 30.0, 0.3
"""gemini-cli's constants."""


@dataclass(frozen=True)
class Backoff:
    """`scale` shortens every delay, the server's too; `random` can be seeded."""

    scale: float = 1.0
    random: Random = field(default_factory=Random)

    def delay_s(self, failures: int, error: ModelError) -> float:
        """Seconds to wait after so many failures in a row (1 or more)."""
        if error.retry_after_s is not None:
            return error.retry_after_s * self.scale
        base = min(_MAX_S, _START_S * _FACTOR ** (failures - 1))
        return base * (1 + self.random.uniform(-_JITTER, _JITTER)) * self.scale
