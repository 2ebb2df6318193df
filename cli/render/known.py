"""known: what the command line knows of a run before its first event."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class Known(NamedTuple):
    """For a run that goes on, what earlier drives of it asked and got."""

    title: str = ""
    calls: Mapping[str, str] = MappingProxyType({})
    """Name of a call → summary, of calls that aren't done yet: their `tool_use` was in an earlier drive."""
    decided: int = 0
    """Decisions that were handed in now."""


NOTHING = Known()
"""A run that starts now."""
