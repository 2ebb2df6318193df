"""turn_events: what a turn tells of its requests: model, route, retries, loops, limits."""

from typing import Literal

from interlock.state.events import Event


class Retry(Event, frozen=True):
    """A model request failed and is asked again after `delay_s` seconds."""

    type: Literal["retry"] = "retry"
    reason: str
    delay_s: float
    attempt: int


class ModelInfo(Event, frozen=True):
    type: Literal["model_info"] = "model_info"
    model: str


class HookRan(Event, frozen=True):
    """A user's hook has answered; `decision` is none, allow, ask or block."""

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
    """A hook blocked a prompt, a request or an answer."""

    type: Literal["agent_blocked"] = "agent_blocked"
    reason: str


class RouteEvent(Event, frozen=True):
    """Which model answers, and why."""

    type: Literal["route"] = "route"
    model: str
    strategy: str
    reason: str


class LoopDetected(Event, frozen=True):
    """`count` is 1 for the first in a prompt, which the model is told of; the second ends the run."""

    type: Literal["loop_detected"] = "loop_detected"
    kind: Literal["tool_call", "content", "model"]
    detail: str
    count: int


class HelperFailed(Event, frozen=True):
    """A helper model gave no usable answer; the run goes on without it."""

    type: Literal["helper_failed"] = "helper_failed"
    role: str
    reason: str


class ContextOverflow(Event, frozen=True):
    type: Literal["context_overflow"] = "context_overflow"
    estimated: int
    remaining: int


class ChatCompressed(Event, frozen=True):
    """The conversation was replaced by a snapshot and its newest part; estimated tokens."""

    type: Literal["chat_compressed"] = "chat_compressed"
    before: int
    after: int


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
