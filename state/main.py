"""main: state, input and output of the main agent loop."""

from typing import Annotated, Any, Literal

from pydantic import Field

from interlock.state.checks import CheckedAnswer
from interlock.state.context import IDE_FIELD, Ide
from interlock.state.conversation import BatchEnd, Conversation
from interlock.state.hooks import HookedPrompt
from interlock.state.plan import PlanMode
from interlock.state.repair import RepairRequest
from interlock.state.run import (
    OF_PROCESS,
    ChainHistory,
    ErrorInfo,
    HistoryMessage,
    WorkflowInput,
    WorkflowOutput,
)

MainStatus = Literal[
    "running",
    "done",
    "waiting",
    "stopped_by_hook",
    "blocked_by_hook",
    "turn_limit",
    "context_overflow",
    "invalid_stream",
    "loop_detected",
    "budget",
    "cancelled",
    "failed",
]


class MainInput(WorkflowInput):
    prompt: str = Field(min_length=1, description="what to do ★")
    history: list[HistoryMessage] = Field(
        default_factory=list[HistoryMessage], description="an earlier conversation"
    )
    ide: Ide | None = Field(None, description=IDE_FIELD)


class MainOutput(WorkflowOutput):
    status: MainStatus
    response: str
    history: ChainHistory
    stats: dict[str, Any]
    error: ErrorInfo | None = None


class MainState(HookedPrompt, CheckedAnswer, Conversation, PlanMode, BatchEnd, RepairRequest, total=False):
    """State of a `main` run besides its chain; what a checkpoint stores."""

    tries_repair: bool
    """Before the first turn of this prompt, `repair` tries to make the check pass."""

    prompt: str
    """Chain record (detached) of a prompt not yet in the conversation; empty: none."""
    said: str
    """Head of a detached chain of the model's texts in this prompt, for AfterAgent hooks; empty: none."""
    fed_back: bool
    """An AfterAgent hook made the model continue in this prompt (`stop_hook_active`)."""
    noted_epoch: Annotated[int, OF_PROCESS]
    """Drive in which the model last heard which background processes had ended."""
    next_speaker_check: bool
    """Whether to check, after an answer without calls, if the model must continue."""
    next_speaker: str
    """`user`, `model`, or empty: undecided."""
    force: bool
    """A person requested a compression only."""
    status: str
