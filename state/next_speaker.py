"""next_speaker: state, input and output of the question who speaks next."""

from typing import Literal

from pydantic import BaseModel, Field

from interlock.state.run import HistoryMessage, Labelled, WorkflowInput, WorkflowOutput

NEXT_SPEAKER_TIMEOUT_S = 20.0
"""Seconds that the helper may take; then the run waits for the user."""


class NextSpeakerInput(WorkflowInput):
    """Input of `next-speaker`."""

    history: list[HistoryMessage] = Field(description="the conversation")


class NextSpeakerOutput(WorkflowOutput):
    """Output of `next-speaker`."""

    next_speaker: Literal["user", "model"] | None
    reasoning: str
    decided_by: Literal["precheck", "model", "none"]


class NextSpeakerState(Labelled, total=False):
    """What the question knows besides the chain."""

    head: str
    next_speaker: str
    """`user`, `model`, or empty: nobody is known to be due."""
    decided_by: str
    """`precheck`, `model`, `none`; empty: not decided yet."""
    speaker_reason: str


class Verdict(BaseModel):
    """What the helper answers."""

    reasoning: str
    next_speaker: Literal["user", "model"]
