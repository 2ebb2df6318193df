"""refused: the call that somebody said no to, kept until the run has done without it."""

from typing_extensions import TypedDict


class Refused(TypedDict, total=False):
    """A call that policy, a person or a hook said no to, and that the run may not be able to do without."""

    tool: str
    who: str
    """policy | person | hook"""
    by: str
    """The rule, the person or the hook."""
    reason: str
    effect: bool
    """It would have changed something: only a later call that does makes up for it."""
