"""plan: state, input and output of plan mode as a workflow."""

from typing import Literal

from pydantic import Field
from typing_extensions import TypedDict

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


class PlanState(TypedDict, total=False):
    """What a `plan` run knows besides its chain."""

    prompt: str
    asked: str
    """Chain record (detached) of the prompt, for hooks."""
    hook_stage: str
    hook_event: str
    hook_key: str
    approval: str
    head: str
    approval_mode: str
    """`plan` until the plan is approved."""
    plan_phase: str
    """requirements | exploration | design | review (`state/charts.py`, ApprovalModeChart)."""
    plan_file: str
    """Absolute path, once there is a plan."""
    plan_name: str
    """The name that was asked for; empty: the model's choice."""
    approved_plan: bool
    plan_steps: list[PlanStep]
    plan_verdict: str
    """What a person said of the plan last: approve_MODE, reject, reject_silently, cancel; empty: nothing yet."""
    unavailable: dict[str, str]
    loop_keys: list[str]
    loop_count: int
    loop_interval: int
    loop_next: int
    loop_found: dict[str, str]
    model: str
    max_turns: int
    max_session_turns: int
    turn_no: int
    session_turns: int
    sticky_model: str
    last_prompt_tokens: int
    turn_status: str
    reply: str
    finish_reason: str
    stop: str
    stopped_by: str
    error: dict[str, str]
    reminders: int
    main_run: str
    status: str
