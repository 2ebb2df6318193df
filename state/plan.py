"""plan: state, input and output of plan mode as a workflow."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from pydantic import Field
from typing_extensions import TypedDict

from interlock.state.chart_channels import ApprovalModeState
from interlock.state.conversation import BatchEnd, Conversation
from interlock.state.hooks import HookedPrompt
from interlock.state.run import ErrorInfo, WorkflowInput, WorkflowOutput

PLAN_NAME = "plan.md"
"""The default plan file."""
REMINDERS = 2
"""How many times a model that stops without a plan is told to continue."""

MOVES_MARK = "approval-mode: "
"""Begins the reason of a step that moved the approval mode; the chart's events follow."""

PlanStatus = Literal["approved", "rejected", "failed", "cancelled"]


class PlanStep(TypedDict):
    text: str
    done: bool


class ApprovedPlan(NamedTuple):
    """What a person approved."""

    file: str
    text: str
    """The text as shown."""
    steps: Sequence[PlanStep]


class PlanMode(TypedDict, total=False):
    """What a run knows of its plan."""

    approval_mode: ApprovalModeState
    approved_plan: bool
    """A person approved the plan in `plan_file`."""
    plan_phase: str
    """requirements | exploration | design | review (`state/charts.py`, ApprovalModeChart); empty outside plan mode."""
    plan_file: str
    """Absolute path, once a plan exists."""
    plan_steps: list[PlanStep]
    """Steps of the approved plan, and which are done."""
    plan_text: str
    """Chain record of the approved plan's text, as the person saw it."""
    plan_verdict: str
    """The person's latest verdict: approve_MODE, reject, reject_silently, cancel; empty: none yet."""


class PlanInput(WorkflowInput):
    prompt: str = Field(min_length=1, description="what to plan ★")
    plan_file: str | None = Field(
        None, pattern=r"\.md$", description="name of the plan file in the run's plans directory (*.md)"
    )


class PlanOutput(WorkflowOutput):
    status: PlanStatus
    plan_file: str | None = None
    steps: list[PlanStep] = Field(default_factory=list[PlanStep])
    next_mode: Literal["default", "auto_edit"] | None = None
    main_run: str | None = None
    error: ErrorInfo | None = None


class PlanState(HookedPrompt, Conversation, PlanMode, BatchEnd, total=False):
    """State of a `plan` run besides its chain."""

    prompt: str
    plan_name: str
    """The requested name; empty: the model chooses."""
    reminders: int
    main_run: str
    said: str
    """As in `MainState`."""
    fed_back: bool
    status: str
