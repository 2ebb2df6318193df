"""next_speaker: state, input and output of deciding who speaks next."""

from typing import Literal

from pydantic import BaseModel, Field

from interlock.state.run import HistoryMessage, Labelled, WorkflowInput, WorkflowOutput

NEXT_SPEAKER_TIMEOUT_S = 20.0
"""Timeout of the helper, in seconds; on expiry the run waits for the user."""


class NextSpeakerInput(WorkflowInput):
    history: list[HistoryMessage] = Field(description="the conversation")


class NextSpeakerOutput(WorkflowOutput):
    next_speaker: Literal["user", "model"] | None
    reasoning: str
    decided_by: Literal["precheck", "model", "none"]


class NextSpeakerState(Labelled, total=False):
    """State of the decision besides the chain."""

    head: str
    finish_reason: str
    """How the last answer ended; empty or absent: unknown."""
    sticky_model: str
    """The model that gave it."""
    next_speaker: str
    """`user`, `model`, or empty: undecided."""
    decided_by: str
    """`precheck`, `model`, `none`; empty: undecided."""
    speaker_reason: str


class Verdict(BaseModel, defer_build=True):
    """What the helper answers."""

    reasoning: str
    next_speaker: Literal["user", "model"]
