"""plan: state, input and output of plan mode as a workflow."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from pydantic import Field
from typing_extensions import TypedDict

from interlock.state.conversation import BatchEnd, Conversation
from interlock.state.hooks import HookedPrompt
from interlock.state.run import ErrorInfo, WorkflowInput, WorkflowOutput

PLAN_NAME = "plan.md"
"""The plan file, where no other name was asked for."""
REMINDERS = 2
"""How often a model that stops without a plan is told to go on."""

PlanStatus = Literal["approved", "rejected", "failed", "cancelled"]


class PlanStep(TypedDict):
    """One step of a plan."""

    text: str
    done: bool


class ApprovedPlan(NamedTuple):
    """What a person approved."""

    file: str
    text: str
    """As it was shown."""
    steps: Sequence[PlanStep]


class PlanMode(TypedDict, total=False):
    """What a run knows of its plan."""

    approval_mode: str
    approved_plan: bool
    """A person approved the plan in `plan_file`."""
    plan_phase: str
    """requirements | exploration | design | review (`state/charts.py`, ApprovalModeChart); empty outside plan mode."""
    plan_file: str
    """Absolute path, once there is a plan."""
    plan_steps: list[PlanStep]
    """Steps of the approved plan, and which are done."""
    plan_text: str
    """Chain record with the text of the approved plan, as the person saw it."""
    plan_verdict: str
    """What a person said of the plan last: approve_MODE, reject, reject_silently, cancel; empty: nothing yet."""


class PlanInput(WorkflowInput):
    """Input of `plan`."""

    prompt: str = Field(min_length=1, description="what to plan ★")
    plan_file: str | None = Field(
        None, pattern=r"\.md$", description="name of the plan file in the run's plans directory (*.md)"
    )


class PlanOutput(WorkflowOutput):
    """Output of `plan`."""

    status: PlanStatus
    plan_file: str | None = None
    steps: list[PlanStep] = Field(default_factory=list[PlanStep])
    next_mode: Literal["default", "auto_edit"] | None = None
    main_run: str | None = None
    error: ErrorInfo | None = None


class PlanState(HookedPrompt, Conversation, PlanMode, BatchEnd, total=False):
    """What a `plan` run knows besides its chain."""

    prompt: str
    plan_name: str
    """The name that was asked for; empty: the model's choice."""
    reminders: int
    main_run: str
    status: str
