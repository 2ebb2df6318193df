"""decided: what was decided of a call, by whom and when; kept with the run for whoever asks why it ran."""

from typing import Literal

from interlock.state.calls import SessionRule, ShellPart
from interlock.state.hooks import HookVerdict
from interlock.state.messages import Frozen

DecidedBy = Literal["policy", "hook", "person", "helper", "program"]
"""`helper`: a model corrected the arguments; `program`: Interlock placed them (a plan's file)."""


class DecisionRecord(Frozen):
    """One decision on one attempt at a call."""

    by: DecidedBy
    decision: str
    """Of policy allow, ask, deny; of hooks none, allow, ask, block, stop; of a person the choice; else `changed`."""
    who: str = ""
    """The person, the deciding hook, or the helper's role."""
    reason: str = ""
    rule: str = ""
    """The deciding rule, with its file and line where it has one."""
    mode: str = ""
    parts: tuple[ShellPart, ...] = ()
    session: SessionRule | None = None
    """The always-choice that lifted an ask."""
    event: str = ""
    """Of hooks: which event."""
    hooks: tuple[HookVerdict, ...] = ()
    """What each hook said."""
    request: str = ""
    """Key of the request that the person answered."""
    said: str = ""
    """The person's feedback or answer."""
    becomes: int = 0
    """Attempt that holds the arguments it was changed to; 0: they stay."""
    said_at: float = 0.0
    """When the person answered; Unix time, seconds. 0: nobody did."""
