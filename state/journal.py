"""journal: what nodes ask of the effect journal and of the people who decide; and what was decided of a call."""

from dataclasses import dataclass
from typing import Literal, Protocol

from interlock.state.calls import (
    Answer,
    ApprovalRequest,
    CallKey,
    CallView,
    Planned,
    SavedRules,
    SessionRule,
    ShellPart,
    ToolResult,
)
from interlock.state.hooks import HookVerdict
from interlock.state.messages import Frozen


@dataclass(frozen=True)
class JournalRow:
    """What the journal knows of one attempt."""

    key: CallKey
    state: Literal["scheduled", "intent", "done"]
    tool: str
    args_hash: str
    planned: Planned | None
    result: ToolResult | None
    epoch: int


class Journal(Protocol):
    """The effect journal (`engine.md` 12, 13). Every method is one committed transaction."""

    def find(self, key: CallKey, call: CallView) -> JournalRow | None:
        """Raises `RunError` when the row names another tool or other arguments."""
        ...

    def amend(self, key: CallKey, call: CallView) -> None:
        """Record the arguments of a later attempt, when they aren't those of the chain."""
        ...

    def call(self, key: CallKey) -> CallView:
        """The call as this attempt has it: amended arguments, or the chain's."""
        ...

    def intend(self, key: CallKey, call: CallView, planned: Planned | None = None) -> None:
        """Commit (power-safe) that an effect is about to happen."""
        ...

    def finish(self, key: CallKey, call: CallView, result: ToolResult) -> None:
        """Commit the result."""
        ...

    def ended_background(self, since: int) -> tuple[list[CallView], int]:
        """Background commands of the drives from `since` on, which ended with them; and the number of this drive."""
        ...

    def settle(self, key: CallKey, record: str) -> None:
        """The result's text is in the conversation now, as `record`: the journal needn't hold it twice."""
        ...


class Approvals(Protocol):
    """Requests to people, and their answers."""

    def ask(self, request: ApprovalRequest) -> str:
        """Write the request, idempotently by its key; its id, which contains the run."""
        ...

    def get(self, key: str) -> ApprovalRequest | None: ...

    def answer(self, key: str) -> Answer | None:
        """The answer to the request with this key, once there is one."""
        ...

    def open_requests(self) -> list[ApprovalRequest]:
        """Requests that nobody has answered yet, oldest first."""
        ...

    def session_rules(self) -> list[SessionRule]:
        """What always-choices of this run stand for."""
        ...

    def add_session_rule(self, key: str, rule: SessionRule) -> None: ...

    def confirm(self, saved: SavedRules) -> None:
        """What this run's own person saved counts as if the run had begun with it."""
        ...


DecidedBy = Literal["policy", "hook", "person", "helper", "program"]
"""`helper`: a model corrected the arguments; `program`: Interlock placed them (a plan's file)."""


class DecisionRecord(Frozen):
    """One decision on one attempt at a call, by whom and when; kept with the run for whoever asks why it ran."""

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
