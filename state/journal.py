"""journal: protocols of the effect journal and the approvals, and records of decisions on calls."""

from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

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
from interlock.state.seen import SeenLog


@dataclass(frozen=True)
class JournalRow:
    """A tool call as the journal knows it."""

    key: CallKey
    state: Literal["scheduled", "intent", "done"]
    tool: str
    args_hash: str
    planned: Planned | None
    result: ToolResult | None
    epoch: int


class Journal(Protocol):
    """The effect journal (`docs/internals.md#the-journals-key`). Every method is one committed transaction."""

    def find_row(self, key: CallKey, call: CallView) -> JournalRow | None:
        """The row for an attempt, if any. Raises `RunError` if it has another tool or other arguments."""
        ...

    def record_changed_arguments(self, key: CallKey, call: CallView) -> None:
        """Record the arguments of a later attempt if they differ from the chain's."""
        ...

    def read_call(self, key: CallKey) -> CallView:
        """The call of this attempt, with its amended arguments if any."""
        ...

    def record_intent(self, key: CallKey, call: CallView, planned: Planned | None = None) -> None:
        """Commit durably (power-safe) that an effect is about to happen."""
        ...

    def record_result(self, key: CallKey, call: CallView, result: ToolResult) -> None:
        """Commit the result."""
        ...

    def for_agent(self, agent: str) -> "Journal":
        """The same journal for a sub-agent, whose conversation has seen other files."""
        ...

    @property
    def seen(self) -> SeenLog:
        """What the conversation saw of files; `record_result` adds what a result shows."""
        ...

    def list_ended_background_commands(self, since_epoch: int) -> tuple[list[CallView], int]:
        """Background commands of drives from `since_epoch` on, which died with them; and the current drive's number."""
        ...

    def list_unreported_undos(self, head: str) -> list[str]:
        """What a person took back and the conversation up to `head` doesn't tell, in order."""
        ...

    def mark_undos_reported(self, head: str, record: str) -> None:
        """The conversation now tells these after `head`, as `record`."""
        ...

    def replace_result_text_with_record(self, key: CallKey, record: str) -> None:
        """The result's text is now in the conversation as `record`, so the journal drops its copy."""
        ...


@dataclass(frozen=True)
class EffectRow:
    """A node's effect as the journal knows it."""

    state: Literal["intent", "failed", "done"]
    attempt: int
    """How often its function was called, or was about to be; from 1."""
    result: Any


class NodeUpdate(NamedTuple):
    """What a user's node wrote, and of what state."""

    place: str
    """Names of the nodes around it."""
    node: str
    code: str
    """Hash of its code."""
    state: str
    """Hash of what it read."""
    wrote: Any = None
    raised: str = ""
    """In place of an update."""


class Effects(Protocol):
    """The journal of what nodes do by `effect`. Every method is one committed transaction.

    `task`: id of the node's task; `place`: names of the nodes around it.
    """

    serde: Any
    """Stores results."""
    storable_classes: Container[tuple[str, ...]]
    """Classes (module, name) that it stores."""
    on_stored_value: Callable[[str, Any], None]
    """Told what a value is, and the value, before it is stored as it is."""

    @property
    def redact(self) -> Callable[[str], str]:
        """Takes secrets out of a text."""
        ...

    def find_row(self, task: str, key: str, node_path: str) -> EffectRow | None: ...

    def record_intent(self, task: str, key: str, node_path: str) -> None:
        """Commit durably (power-safe) that the function is about to be called."""
        ...

    def record_failure(self, task: str, key: str) -> None:
        """Commit that the function raised."""
        ...

    def record_result(self, task: str, key: str, result: Any) -> None:
        """Commit the result. Raises `RunError`, and leaves the intent, if it can't be stored."""
        ...

    def record_node_update(self, task: str, update: NodeUpdate) -> None:
        """Keep what a user's node wrote; committed with it."""
        ...

    def find_recorded_node_update(self, task: str, update: NodeUpdate) -> NodeUpdate | None:
        """In a replay, return what the node wrote then, of the same state; elsewhere None: it runs.

        Raises `RunError` if a replay has no record of it.
        """
        ...


class Approvals(Protocol):
    """Requests to people, and their answers."""

    def write_request(self, request: ApprovalRequest) -> str:
        """Write the request, idempotent by key; returns its id, which contains the run."""
        ...

    def redact_request(self, request: ApprovalRequest) -> ApprovalRequest:
        """The request as it is written: what it shows has marks in place of secrets."""
        ...

    def find_request(self, key: str) -> ApprovalRequest | None: ...

    def find_answer(self, key: str) -> Answer | None:
        """The answer to the request with this key, if any."""
        ...

    def withdraw_requests(self, key_prefix: str, except_containing: str = "") -> None:
        """Withdraw unanswered requests whose keys begin so, except those with `except_containing` in the key."""
        ...

    def record_parallel_count(self, key: str, count: int) -> None:
        """Note that the request stands for so many parallel questions."""
        ...

    def list_open_requests(self) -> list[ApprovalRequest]:
        """Unanswered requests, oldest first."""
        ...

    def list_session_rules(self) -> list[SessionRule]:
        """Rules from this run's always-choices."""
        ...

    def add_session_rule(self, key: str, rule: SessionRule) -> None: ...

    def accept_saved_rules(self, saved: SavedRules) -> None:
        """Accept the rules file as saved by this run's own person, as if the run had started with it."""
        ...


DecidedBy = Literal["policy", "hook", "person", "helper", "program"]
"""`helper`: a model corrected the arguments; `program`: Interlock redirected them (a plan's file)."""


class DecisionRecord(Frozen):
    """One decision on one attempt at a call, by whom and when; an audit trail kept with the run."""

    by: DecidedBy
    decision: str
    """Policy: allow, ask, deny. Hooks: none, allow, ask, block, stop. Person: the choice. Else `changed`."""
    who: str = ""
    """The person, the deciding hook, or the helper's role."""
    reason: str = ""
    rule: str = ""
    """The deciding rule, with file and line if it has them."""
    mode: str = ""
    parts: tuple[ShellPart, ...] = ()
    session: SessionRule | None = None
    """The always-choice that overrode an ask."""
    event: str = ""
    """For hooks: the event."""
    hooks: tuple[HookVerdict, ...] = ()
    """Each hook's answer."""
    request: str = ""
    """Key of the request the person answered."""
    said: str = ""
    """The person's feedback or answer."""
    becomes: int = 0
    """Attempt with the changed arguments; 0: unchanged."""
    said_at: float = 0.0
    """When the person answered, in Unix seconds; 0: no one did."""
