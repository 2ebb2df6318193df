"""outcome: what was decided, by which rule, and of which part."""

from dataclasses import dataclass
from typing import Literal

from interlock.services.policy.rule import Rule
from interlock.services.shell.model import ShellCommand
from interlock.state.calls import Decision, SessionRule

Cause = Literal[
    "rule", "session", "none", "danger", "opaque", "redirection", "elsewhere", "hidden", "protected"
]
"""`none`: no rule met it. `hidden`: a rule that denies or asks may be about what can't be seen of it.
`protected`: it would change what the program goes by."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A decision on a plain call, or on one command of a shell line."""

    decision: Decision
    cause: Cause
    rule: Rule | None = None
    """The deciding rule; for danger, opaque, redirection and elsewhere the one whose allow it lowered."""
    session: SessionRule | None = None
    detail: str = ""
    """What the danger is, or why it can't be seen through."""


@dataclass(frozen=True, slots=True)
class PartOutcome:
    """The decision on one command of a shell line."""

    command: ShellCommand
    outcome: Outcome
    plain: bool = False
    """It only reads, with plain arguments inside the workspace."""
