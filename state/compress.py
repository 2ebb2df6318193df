"""compress: state, input and output of history compression."""

from typing import Any, Literal

from pydantic import Field

from interlock.state.conversation import Sized
from interlock.state.hooks import HookWait
from interlock.state.plan import PlanStep
from interlock.state.run import HistoryMessage, WorkflowInput, WorkflowOutput

KEPT_OUTPUT_TOKENS = 50_000
"""Newest tool output kept whole (same in gemini-cli, for compression and masking)."""
KEPT_LINES = 30
"""Trailing lines kept of an older output (`docs/internals.md#long-texts`)."""
GROWTH = 1.1
"""A failed attempt isn't repeated until the history has grown by 10 % (`docs/internals.md#long-texts`)."""

CompressStatus = Literal["noop", "compressed", "truncated", "failed_empty", "failed_inflated"]


class CompressInput(WorkflowInput):
    history: list[HistoryMessage] = Field(description="the conversation")
    force: bool = Field(False, description="compress even below the threshold or after a failed attempt")
    token_limit: int = Field(ge=1, description="the model's context window, in tokens")
    last_prompt_tokens: int | None = Field(
        None, ge=0, description="tokens of the last request; default: estimated from the history"
    )
    threshold: float = Field(0.5, gt=0, le=1, description="share of the window at which compression starts")
    preserve: float = Field(0.3, ge=0, lt=1, description="share of the characters to keep verbatim")
    failed_at_tokens: int | None = Field(None, ge=0, description="tokens at the last failed attempt")


class CompressOutput(WorkflowOutput):
    """Output of `compress`. Token counts are estimates."""

    status: CompressStatus
    history: list[dict[str, Any]]
    tokens_before: int
    tokens_after: int
    snapshot: str | None = None
    failed_at_tokens: int | None = None


class CompressState(HookWait, Sized, total=False):
    """State of one compression; keys it shares with `turn` are passed in by it."""

    plan_steps: list[PlanStep]
    """Steps of the approved plan."""
    force: bool
    token_limit: int
    """0: the model's own limit."""
    threshold: float
    preserve: float
    tokens: int
    """Compared with the threshold."""
    crowded: bool
    """The next request may not fit: the older part goes, with a summary or without."""
    compress_status: str
    base: str
    """Head of the chain with older outputs shortened; `head` if there were none."""
    split: int
    """Index in the history of the first message kept."""
    carried: int
    """Index of an earlier message that is also kept: the request in progress; -1: none."""
    draft: str
    """Chain record of the model's snapshot; empty: none."""
    checked: str
    """Chain record of the snapshot after its check; empty: none."""
    snapshot: str
    """Chain record of the accepted snapshot."""
    tokens_before: int
    tokens_after: int
