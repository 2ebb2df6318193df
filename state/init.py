"""init: state, input and output of the workflow that writes a repository's memory file."""

from typing import Literal

from pydantic import Field

from interlock.state.chart_channels import ApprovalModeState
from interlock.state.conversation import BatchEnd, Conversation
from interlock.state.run import ErrorInfo, Labelled, WorkflowInput, WorkflowOutput

REMINDERS = 2
"""How many times a model that stops before writing the file is reminded."""
MODE = "architect"
"""The mode it runs in: reading, and writing Markdown."""

InitStatus = Literal["done", "unchanged", "failed", "cancelled", "stopped_by_hook"]


class InitInput(WorkflowInput):
    hint: str | None = Field(None, min_length=1, description="what to explore or mention ★")
    file: str | None = Field(
        None, description="file from `context.fileName`; default: the existing one, else the first"
    )


class InitOutput(WorkflowOutput):
    status: InitStatus
    file: str
    response: str = ""
    """The model's final words."""
    error: ErrorInfo | None = None


class InitState(Conversation, BatchEnd, Labelled, total=False):
    """State of an `init` run besides its chain."""

    prompt: str
    """Chain record (detached) of the request until it is in the conversation; initially, of the input's hint."""
    file: str
    """File name; initially the requested one, or empty."""
    stood: str
    """Hash of the file's previous text; empty: it didn't exist."""
    approval_mode: ApprovalModeState
    reminders: int
    status: str
