"""turn: state, input and output of one model turn."""

from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue

from interlock.state.context import IDE_FIELD, Ide
from interlock.state.conversation import Conversation
from interlock.state.hooks import HookWait
from interlock.state.loop_check import LoopWatch
from interlock.state.messages import RetryPlan
from interlock.state.plan import PlanStep
from interlock.state.route import Routing
from interlock.state.run import (
    OF_PROCESS,
    ChainHistory,
    ErrorInfo,
    HistoryMessage,
    WorkflowInput,
    WorkflowOutput,
    keep_newest,
)

STREAM_ATTEMPTS = 4
"""Tries at an answer whose stream was invalid (gemini-cli: 4, with delays of 1, 2, 4 s between)."""

TurnStatus = Literal[
    "ok",
    "calls",
    "context_overflow",
    "session_limit",
    "loop_nudge",
    "loop_detected",
    "invalid_stream",
    "stopped_by_hook",
    "blocked_by_hook",
    "error",
]


class TurnInput(WorkflowInput):
    request: str | list[dict[str, JsonValue]] = Field(description="the user's message, text or parts ★")
    history: list[HistoryMessage] = Field(default_factory=list[HistoryMessage])
    ide: Ide | None = Field(None, description=IDE_FIELD)
    turn_no: int = Field(1, ge=1, description="number of this turn within its prompt")
    session_turns: int = Field(0, ge=0, description="model turns of the session before this one")
    sticky_model: str | None = Field(None, description="the model that this prompt already uses")
    last_prompt_tokens: int = Field(
        0, ge=0, description="tokens of the last request, as the provider counted them"
    )


class TurnOutput(WorkflowOutput):
    status: TurnStatus
    text: str
    tool_calls: list[dict[str, Any]]
    finish_reason: str | None
    model: str
    usage: dict[str, int]
    history: ChainHistory
    error: ErrorInfo | None = None


class TurnState(HookWait, Conversation, Routing, total=False):
    """State of one turn besides the chain."""

    plan_steps: list[PlanStep]
    attempt: int
    """Tries at this answer so far; counts invalid streams, not connection errors."""
    candidate: str
    """Chain record of an answer not yet accepted by `check_stream`."""
    stream_problem: str
    """Why the last try was invalid; empty: it wasn't."""
    retry: Annotated[RetryPlan | None, OF_PROCESS]
    """What went wrong last while trying for this answer; null or absent: nothing."""
    overflows: int
    """Requests of this turn that were too long for the model, as its server said."""
    rerouted: bool
    """This turn has already switched models; it does so once at most."""
    said: str
    """Head of a detached chain of the model's texts in this prompt, for AfterAgent hooks; empty: none."""
    request_head: str
    """Head of the hook-modified chain to send instead of `head`; empty: send `head`."""
    request_model: str
    """The model a hook chose for this request; empty: none."""
    request_temperature: float | None
    """The temperature a hook chose; null: none."""
    request_tools: list[str] | None
    """Names of the tools hooks allow in this request; null: all."""
    time_left_s: Annotated[float, OF_PROCESS]
    """Seconds the answer may take, for an agent with a time limit; absent: no limit."""


class TurnDone(LoopWatch, total=False):
    """Keys a turn returns to its parent graph: what it may have changed."""

    head: str
    protocol: Annotated[str, keep_newest]
    unavailable: dict[str, str]
    turn_no: int
    session_turns: int
    sticky_model: str
    last_prompt_tokens: int
    compress_failed_at: int
    ide_told: str
    turn_status: str
    reply: str
    finish_reason: str
    error: dict[str, str]
    said: str
