"""exit_plan_mode: submit the plan for review."""

from typing import Literal

from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

from interlock.state.calls import failure
from interlock.state.tooling import Args, Tool, always


class ExitPlanModeArgs(Args):
    plan_filename: str = Field(
        min_length=1, description="Name of the plan file (*.md) in the plans folder, as you wrote it."
    )
    plan: SkipJsonSchema[str | None] = Field(
        default=None, description="By a person's edit only: the plan's new text."
    )
    approval_mode: SkipJsonSchema[Literal["default", "auto_edit"] | None] = Field(
        default=None, description="By a person's edit only: the mode to go on in."
    )


TOOL = Tool(
    name="exit_plan_mode",
    description="Hands the finished plan in for the user's review. Approved, plan mode ends; otherwise you are told"
    " what to change.",
    args=ExitPlanModeArgs,
    risk="state",
    kind="review",
    summary=lambda args: f"Review the plan {args.plan_filename}",
    # Only reached if nobody can review: normally the graph asks a person.
    run=always(failure("no_review", "The plan can't be reviewed here; say in your answer what it is.")),
)
