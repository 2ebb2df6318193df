"""known: what the command line knows of a run before its first event."""

from typing import NamedTuple


class Known(NamedTuple):
    """For a run that goes on, what earlier drives of it asked and got."""

    title: str = ""
    decided: tuple[str, ...] = ()
    """Requests that were decided now."""


NOTHING = Known()
"""A run that starts now."""
