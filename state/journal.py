"""journal: what nodes ask of the effect journal and of the people who decide."""

from dataclasses import dataclass
from typing import Literal, Protocol

from interlock.state.calls import Answer, ApprovalRequest, CallKey, CallView, Planned, SessionRule, ToolResult


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
