"""events: what a run emits. One stream, consumed by every renderer.

Names and fields are those of `stream-json`; a renderer adds the timestamp.
"""

from collections.abc import Callable
from typing import Any, Literal

from pydantic import BaseModel, JsonValue


class Event(BaseModel, frozen=True, defer_build=True):
    """Base of all events. `agent` is the path of the emitting sub-agent; empty: the run itself."""

    type: str
    agent: str = ""


class Init(Event, frozen=True):
    type: Literal["init"] = "init"
    session_id: str
    model: str
    workflow: str


class MessageEvent(Event, frozen=True):
    """A user message or assistant text; with `delta`, one piece of streamed text."""

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
    """A call starts to run; in a resumed run, its `tool_use` was emitted in an earlier drive."""

    type: Literal["tool_start"] = "tool_start"
    tool_name: str
    tool_id: str
    summary: str = ""
    parameters: dict[str, JsonValue] | None = None
    """Set if a person, a hook or a helper changed them."""


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
    """For a failed command: `exit 1`, or its signal. To the model that is a result, not an error."""


class Undone(Event, frozen=True):
    """A person took back changes to files, or went back to an earlier step."""

    type: Literal["undone"] = "undone"
    content: str
    """One or more lines for people; the model hears them, too."""


class Asking(Event, frozen=True):
    """How far a request to the run's model has come; text, thoughts and calls follow as their own events."""

    type: Literal["asking"] = "asking"
    stage: Literal["connecting", "reading", "thinking"]
    model: str
    tokens: int
    """Of the request, estimated."""
    tools: int = 0
    """Of them, the declarations of tools."""
    window: int = 0
    """The model's context window."""


SAVING = "saving files before a change:"
"""What a snapshot's progress is called."""


class Progress(Event, frozen=True):
    """Progress of a long operation."""

    type: Literal["progress"] = "progress"
    what: str
    """`indexing`."""
    done: int
    total: int
    """0: not known yet."""
    unit: str


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


class CustomEvent(Event, frozen=True):
    """Data that a node of somebody's own graph wrote to its stream."""

    type: Literal["custom"] = "custom"
    data: JsonValue


class ApprovalRequired(Event, frozen=True):
    """A person must decide; fields as in the approval request."""

    type: Literal["approval_required"] = "approval_required"
    id: str
    kind: str
    tool_name: str
    args: dict[str, JsonValue]
    reason: str
    preview: str
    choices: list[str]


class NotificationEvent(Event, frozen=True):
    """The run is waiting, and the user wants a terminal notification (`general.notify.terminal`)."""

    type: Literal["notification"] = "notification"
    title: str
    message: str
    ways: list[Literal["bell", "osc9", "osc777"]]


class AgentStart(Event, frozen=True):
    """A sub-agent starts; `agent` is its path."""

    type: Literal["agent_start"] = "agent_start"
    name: str
    task: str
    """Its task, on one line."""


class AgentEnd(Event, frozen=True):
    type: Literal["agent_end"] = "agent_end"
    reason: str
    turns: int
    duration_s: float


class HandOver(Event, frozen=True):
    """Another run takes over from here."""

    type: Literal["hand_over"] = "hand_over"
    run: str
    workflow: str


class Cancelled(Event, frozen=True):
    """A person or a signal stopped the run; each call under way was reported as cancelled before."""

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
    """The workflow's Output object, except for `main`."""
    exit_code: int = 0
    warnings: list[str] = []


Emit = Callable[[Event], None]
"""Sends an event to every renderer; never blocks, never fails."""


class Retry(Event, frozen=True):
    """A model request failed and is retried after `delay_s` seconds."""

    type: Literal["retry"] = "retry"
    reason: str
    delay_s: float
    attempt: int


class ModelInfo(Event, frozen=True):
    type: Literal["model_info"] = "model_info"
    model: str


class HookRan(Event, frozen=True):
    """A user's hook answered; `decision` is none, allow, ask or block."""

    type: Literal["hook"] = "hook"
    event: str
    name: str
    decision: str
    reason: str = ""
    warning: str = ""
    duration_ms: int = 0


class AgentStopped(Event, frozen=True):
    """A hook ended the run."""

    type: Literal["agent_stopped"] = "agent_stopped"
    reason: str


class AgentBlocked(Event, frozen=True):
    """A hook blocked a prompt, a request or an answer, or a check failed after an answer."""

    type: Literal["agent_blocked"] = "agent_blocked"
    reason: str
    by: Literal["hook", "check"] = "hook"


class RouteEvent(Event, frozen=True):
    """Which model answers, and why."""

    type: Literal["route"] = "route"
    model: str
    strategy: str
    reason: str


class LoopDetected(Event, frozen=True):
    """`count` is 1 for the first loop in a prompt, which the model is warned about; the second ends the run."""

    type: Literal["loop_detected"] = "loop_detected"
    kind: Literal["tool_call", "content", "model", "noise", "length"]
    detail: str
    count: int


class HelperFailed(Event, frozen=True):
    """A helper model gave no usable answer; the run continues without it."""

    type: Literal["helper_failed"] = "helper_failed"
    role: str
    reason: str


class ContextOverflow(Event, frozen=True):
    type: Literal["context_overflow"] = "context_overflow"
    estimated: int
    remaining: int


class ChatCompressed(Event, frozen=True):
    """A snapshot plus the newest messages replaced the conversation; token counts are estimates."""

    type: Literal["chat_compressed"] = "chat_compressed"
    before: int
    after: int


class SystemPromptChanged(Event, frozen=True):
    """The system prompt differs from the conversation's first: mode, tools, rules or settings changed."""

    type: Literal["system_prompt_changed"] = "system_prompt_changed"
    sections: list[str]


class MaxSessionTurns(Event, frozen=True):
    type: Literal["max_session_turns"] = "max_session_turns"
    limit: int


class InvalidStream(Event, frozen=True):
    type: Literal["invalid_stream"] = "invalid_stream"
    reason: str


class Finished(Event, frozen=True):
    """A model answer is complete."""

    type: Literal["finished"] = "finished"
    reason: str
    usage: dict[str, int]
    duration_ms: int
