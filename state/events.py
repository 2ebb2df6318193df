"""events: what a run tells while it goes. One stream, consumed by every renderer.

Names and fields are those of `stream-json`; a renderer adds the timestamp.
"""

from typing import Any, Literal, Protocol

from pydantic import BaseModel, JsonValue


class Event(BaseModel, frozen=True):
    """Base of all events. `agent` is the path of the sub-agent that speaks, empty for the run itself."""

    type: str
    agent: str = ""


class Init(Event, frozen=True):
    type: Literal["init"] = "init"
    session_id: str
    model: str
    workflow: str


class MessageEvent(Event, frozen=True):
    """A user message, or an assistant's text: with `delta` a piece of it as it streams."""

    type: Literal["message"] = "message"
    role: Literal["user", "assistant"]
    content: str
    delta: bool = False


class Thought(Event, frozen=True):
    type: Literal["thought"] = "thought"
    content: str


class ToolUse(Event, frozen=True):
    type: Literal["tool_use"] = "tool_use"
    tool_name: str
    tool_id: str
    parameters: dict[str, JsonValue]
    summary: str = ""
    """One line for people."""


class ToolStart(Event, frozen=True):
    """A call begins to run: in a run that was resumed, its `tool_use` was in an earlier drive."""

    type: Literal["tool_start"] = "tool_start"
    tool_name: str
    tool_id: str
    summary: str = ""
    parameters: dict[str, JsonValue] | None = None
    """Where a person, a hook or a helper changed them."""


class ToolOutput(Event, frozen=True):
    """Live output of a running tool."""

    type: Literal["tool_output"] = "tool_output"
    tool_id: str
    text: str


class ToolResultEvent(Event, frozen=True):
    type: Literal["tool_result"] = "tool_result"
    tool_name: str
    tool_id: str
    status: Literal["success", "error", "cancelled"]
    output: str = ""
    error: dict[str, str] | None = None
    duration_ms: int = 0
    diff: str = ""
    """Unified diff of a file change, for people."""
    summary: str = ""
    """One line for people: the call as it ran."""
    exit: str = ""
    """Of a command that failed: `exit 1`, or its signal. To the model that is an answer, no error."""


class ErrorEvent(Event, frozen=True):
    type: Literal["error"] = "error"
    severity: Literal["warning", "error"]
    message: str


class NodeStart(Event, frozen=True):
    type: Literal["node_start"] = "node_start"
    workflow: str
    node: str
    checkpoint_id: str


class NodeEnd(Event, frozen=True):
    type: Literal["node_end"] = "node_end"
    workflow: str
    node: str
    checkpoint_id: str
    duration_ms: float
    route: str | None = None


class ApprovalRequired(Event, frozen=True):
    """A person must decide; the fields are those of the approval request."""

    type: Literal["approval_required"] = "approval_required"
    id: str
    kind: str
    tool_name: str
    args: dict[str, JsonValue]
    reason: str
    preview: str
    choices: list[str]


class AgentStart(Event, frozen=True):
    """A sub-agent begins; `agent` is its path."""

    type: Literal["agent_start"] = "agent_start"
    name: str
    task: str
    """What it shall do, on one line."""


class AgentEnd(Event, frozen=True):
    type: Literal["agent_end"] = "agent_end"
    reason: str
    turns: int
    duration_s: float


class HandOver(Event, frozen=True):
    """Another run goes on from here."""

    type: Literal["hand_over"] = "hand_over"
    run: str
    workflow: str


class Cancelled(Event, frozen=True):
    type: Literal["cancelled"] = "cancelled"


class Result(Event, frozen=True):
    """The last event of a drive."""

    type: Literal["result"] = "result"
    status: str
    response: str = ""
    error: dict[str, Any] | None = None
    stats: dict[str, Any] = {}
    pending_approvals: list[dict[str, Any]] = []
    resume_command: str | None = None
    output: dict[str, Any] | None = None
    """The workflow's Output object, for workflows other than `main`."""
    exit_code: int = 0
    warnings: list[str] = []


class Emit(Protocol):
    """Hands an event to every renderer; never blocks, never fails."""

    def __call__(self, event: Event, /) -> None: ...
