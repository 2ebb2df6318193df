"""summarize: state, input and output of shortening a tool's output."""

from typing import Literal

from pydantic import Field

from interlock.state.calls import OneCall
from interlock.state.run import HistoryMessage, Labelled, WorkflowInput, WorkflowOutput

MAX_OUTPUT_TOKENS = 2000
"""Outputs up to this many estimated tokens are unchanged (gemini-cli: the same number, in characters)."""
HEAD_SHARE = 0.2
"""Share of the kept text taken from the beginning; the rest is the end, where a command reports its outcome."""

SummarizeStatus = Literal["unchanged", "summarized", "truncated"]


class SummarizeInput(WorkflowInput):
    tool: str = Field(min_length=1, description="name of the tool that produced the text")
    text: str = Field(description="the output ★")
    max_output_tokens: int = Field(
        MAX_OUTPUT_TOKENS, ge=1, description="keep shorter texts as they are; limit of the summary, in tokens"
    )
    history: list[HistoryMessage] = Field(
        default_factory=list[HistoryMessage], description="the conversation that the output belongs to"
    )


class SummarizeOutput(WorkflowOutput):
    text: str
    status: SummarizeStatus
    saved_to: str | None = None


class SummarizeState(Labelled, OneCall, total=False):
    """One output being shortened: a call's, or one passed in (then there is no `message`).

    Texts are chain records, journal rows and files; state holds their names.
    """

    tool: str
    source: str
    """Chain record (detached) of a text passed in."""
    head: str
    """The conversation that text belongs to; empty: none."""
    max_output_tokens: int
    """0: from the tool's settings."""
    saved_to: str
    """File with the complete output; empty: not needed."""
    summary: str
    """Chain record of the model's summary; empty: none."""
    shortened: str
    """Chain record (detached) of the text sent to the model instead; empty: the output itself."""
    summarize_status: str
