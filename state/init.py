"""init: state, input and output of the workflow that writes a repository's memory file."""

from typing import Literal

from pydantic import Field

from interlock.state.conversation import BatchEnd, Conversation
from interlock.state.run import ErrorInfo, Labelled, WorkflowInput, WorkflowOutput

REMINDERS = 2
"""How often a model that stops before the file is written is told to write it."""
MODE = "architect"
"""The mode of work that it is done in: reading, and writing Markdown."""

InitStatus = Literal["done", "unchanged", "failed", "cancelled", "stopped_by_hook"]


class InitInput(WorkflowInput):
    """Input of `init`."""

    hint: str | None = Field(None, min_length=1, description="what else it shall look at, or hold ★")
    file: str | None = Field(
        None, description="one of `context.fileName`; default: the one that stands, else the first"
    )


class InitOutput(WorkflowOutput):
    """Output of `init`."""

    status: InitStatus
    file: str
    response: str = ""
    """What the model says of it."""
    error: ErrorInfo | None = None


class InitState(Conversation, BatchEnd, Labelled, total=False):
    """What an `init` run knows besides its chain."""

    prompt: str
    """Chain record (detached) of the request, until it is in the conversation; at first of the input's hint."""
    file: str
    """Name of the file; at first the one that was asked for, or empty."""
    stood: str
    """Hash of the file's text before; empty: there was none."""
    approval_mode: str
    reminders: int
    status: str
