"""unwrapped: what a command runs in turn."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict

from interlock.services.shell.model import Word
from interlock.services.shell.variables import evaluated


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


class Sets(TypedDict):
    assigns: tuple[str, ...]
    opaque: str | None


def sets(words: Sequence[Word]) -> Sets:
    """Variables that a wrapper sets for what it runs."""
    pairs = [(w.lead.partition("=")[0], w.text.partition("=")[2]) for w in words]
    why = next((e for name, value in pairs if (e := evaluated(name, value))), None)
    return {"assigns": tuple(name for name, _ in pairs), "opaque": why}
