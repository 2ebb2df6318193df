"""main: state, input and output of the main agent loop."""

from typing import Any, Literal

from pydantic import Field

from interlock.state.hooks import HookedPrompt
from interlock.state.loop_check import LoopWatch
from interlock.state.plan import PlanMode
from interlock.state.refused import Refusals
from interlock.state.run import ErrorInfo, HistoryMessage, WorkflowInput, WorkflowOutput

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
    """Input of `main`."""

    prompt: str = Field(min_length=1, description="what to do ★")
    history: list[HistoryMessage] = Field(
        default_factory=list[HistoryMessage], description="an earlier conversation"
    )
    ide: dict[str, Any] | None = Field(
        None, description="editor context (active file, open files, selection)"
    )


class MainOutput(WorkflowOutput):
    """Output of `main`."""

    status: MainStatus
    response: str
    history: list[dict[str, Any]]
    stats: dict[str, Any]
    error: ErrorInfo | None = None


class MainState(HookedPrompt, LoopWatch, PlanMode, total=False):
    """Everything a `main` run knows besides its chain; this is what a checkpoint stores."""

    prompt: str
    """Chain record (detached) of a prompt that isn't in the conversation yet; empty: there is none."""
    said: str
    """Head of a detached chain of what the model said in this prompt, kept for AfterAgent hooks; empty: nothing."""
    fed_back: bool
    """An AfterAgent hook has sent the model on in this prompt (`stop_hook_active`)."""
    prompt_no: int
    """1 for the first prompt of the run; a follow-up prompt adds one."""
    head: str
    """Newest record of the conversation."""
    noted_epoch: int
    """Drive in which the model was last told which background processes had ended."""
    unavailable: dict[str, str]
    """Model → for how long nobody may choose it: `run` or `prompt`."""
    model: str
    """As asked for: alias or id."""
    max_turns: int
    max_session_turns: int
    turn_no: int
    """Model turns of this prompt so far."""
    session_turns: int
    """Model turns of the run so far."""
    sticky_model: str
    """The model that this prompt is answered by; empty until the first turn chose it."""
    last_prompt_tokens: int
    """As the provider counted them; 0: not known, or no longer true."""
    compress_failed_at: int
    """Tokens at which the last compression failed; 0: none failed since the last that didn't."""
    todos: str
    """Chain record (detached) of the newest list of steps; empty: none."""
    reply: str
    """Chain record of the last turn's answer."""
    finish_reason: str
    next_speaker_check: bool
    """Whether somebody looks, after an answer without calls, if the model must go on."""
    next_speaker: str
    """`user`, `model`, or empty: nobody is known to be due."""
    stop: str
    """Reason for which a tool or hook ended the run; empty otherwise."""
    stopped_by: str
    """`person` or `hook`, when somebody did."""
    refused: Refusals
    """What somebody refused since the prompt."""
    status: str
