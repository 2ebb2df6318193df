"""unwrapped: what a command runs in turn."""

from collections.abc import Sequence
from dataclasses import dataclass

from interlock.services.shell.model import Word


@dataclass(frozen=True, slots=True)
class Unwrapped:
    """Commands and lines that a command runs."""

    runs: tuple[Sequence[Word], ...] = ()
    script: str | None = None
    """A line of bash that it runs."""
    assigns: tuple[str, ...] = ()
    danger: str | None = None
    opaque: str | None = None
    transparent: bool = False


NOTHING = Unwrapped()
HIDDEN = Unwrapped(opaque="it runs something that is only known when it runs")
