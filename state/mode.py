"""mode: input, output and state of mode selection and switching."""

from typing import Any

from pydantic import Field

from interlock.state.run import ErrorInfo, WorkflowInput, WorkflowOutput
from interlock.state.tools import ToolsState


class ModeInput(WorkflowInput):
    """Input of `mode`; `mode` is the one that it is in."""

    switch_to: str | None = Field(
        None, description="slug of the mode to switch to, which a person is asked about"
    )
    reason: str = Field("", description="why ★")
    tool: str | None = Field(None, description="instead: may this tool be called in the mode")
    path: str | None = Field(None, description="on this file")
    content: str | None = Field(None, description="with this text; that it is empty changes nothing")


class ModeOutput(WorkflowOutput):
    """Output of `mode`."""

    modes: list[dict[str, Any]]
    current: str
    allowed: bool | None = None
    error: ErrorInfo | None = None


class ModeState(ToolsState, total=False):
    """State of `mode`; a switch is a batch of one call."""

    tool: str
    path: str
    allowed: bool | None
    error: dict[str, str]
