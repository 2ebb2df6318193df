"""edit: state, input and output of edit correction."""

from typing import Literal

from pydantic import BaseModel, Field, model_validator

from interlock.state.calls import OneCall
from interlock.state.chart_channels import ApprovalModeState
from interlock.state.run import Closed, Labelled, WorkflowInput, WorkflowOutput

FIXER_TIMEOUT_S = 40.0
"""Timeout for one answer of a helper model (gemini-cli: 40)."""
GRACE_S = 2.0
"""A file modified longer than this after the last edit was changed by someone else (seed 000)."""

EDIT_TOOL = "replace"
"""The tool whose calls are edits."""

EditStatus = Literal["applied", "created", "already_applied", "failed"]


class EditInput(WorkflowInput):
    """Input of `edit`: a file of the workspace, or plain content."""

    file_path: str | None = Field(None, min_length=1, description="file to edit; relative to the workspace")
    content: str | None = Field(None, description="text to edit instead of a file; leaves the disk alone")
    old_string: str = Field(description="text to replace; empty: create the file")
    new_string: str = Field(description="replacement text")
    instruction: str = Field("", description="purpose of the change, in one sentence")
    expected_replacements: int | None = Field(
        1, ge=1, description="expected number of matches; null: replace every match, at least one"
    )
    known_hash: str | None = Field(
        None, description="sha256 of the file's bytes when it was last read or written"
    )
    last_edit_at: float | None = Field(None, description="Unix time of the last edit, in seconds")

    @model_validator(mode="after")
    def _require_path_or_content(self) -> "EditInput":
        if (self.file_path is None) == (self.content is None):
            raise ValueError("give either file_path or content")
        return self


class EditError(Closed):
    """Why an edit was not made."""

    code: str
    message: str


class EditOutput(WorkflowOutput):
    """Output of `edit`. `old_string` and `new_string` are what was replaced by what, at the first place."""

    status: EditStatus
    strategy: str | None = None
    occurrences: int = 0
    new_content: str | None = None
    diff: str = ""
    old_string: str
    new_string: str
    explanation: str | None = None
    error: EditError | None = None


class EditState(Labelled, OneCall, total=False):
    """State of an edit, a `replace` call, besides the chain. Texts stay in the file and in the chain."""

    source: str
    """`file`, `content`, or empty: a proposal for a call of a batch, based on the result of the calls before it."""
    known_hash: str
    last_edit_at: float
    """0: unknown."""
    seen: str
    """sha256 of the bytes that `read` saw; empty: no file."""
    modified_at: float
    """The file's mtime when `read` ran; 0: no file."""
    helper: str
    """Chain record of the helper's answer whose strings are being tried; empty: the call's own strings."""
    helper_role: str
    strategy: str
    """What found the place: `exact`; `trim, then exact`; `edit_target, then exact`, where a helper chose it."""
    occurrences: int
    result: str
    """Chain record with the new text, its diff, and what was replaced."""
    explanation: str
    error: dict[str, str]
    """The first error, {code, message}: reported if nothing helps."""
    edit_status: str
    approval_mode: ApprovalModeState
    approval: str
    """Key of the approval request; empty: none was needed."""
    asks: int


class TargetAnswer(BaseModel, defer_build=True):
    """What `correct_target` asks for."""

    corrected_target_snippet: str = Field(
        min_length=1, description="the exact text of the file that was meant, character by character"
    )


class MeantEdit(TargetAnswer):
    """The text that is meant, and the replacement in its indentation."""

    new_string: str | None = None
    """None in records of earlier versions: as the call has it."""


class FixAnswer(BaseModel, defer_build=True):
    """What `fix_edit` asks for."""

    search: str = Field(description="text that stands in the file exactly, character by character")
    replace: str = Field(description="the text to put there")
    explanation: str = Field(description="what was wrong with the edit, in one or two sentences")
    noChangesRequired: bool = Field(  # noqa: N815 - the contract's name
        False, description="true when the file already is as the instruction wants it"
    )
