"""enter_plan_mode: plan first; change nothing until the plan is approved."""

from pydantic import Field

from interlock.state.calls import ToolResult
from interlock.state.tooling import Args, Tool, always


class EnterPlanModeArgs(Args):
    reason: str = Field(default="", description="Why a plan is worth making first.")


_BEGINS = (
    "Plan mode begins. You can read, search and ask; everything else is refused until the user has approved a plan. "
    "Find out what is wanted, read the code that the change touches, then write the plan with write_file to a relative "
    "path that ends in .md (it lands in the run's plans folder): the goal, what you found, the steps as check boxes "
    "(- [ ] …), how it is verified. Then call exit_plan_mode with that name."
)


TOOL = Tool(
    name="enter_plan_mode",
    description="Switches to plan mode: you read, ask and write a plan, and nothing is changed until the user has"
    " approved it. For work that is large, vague, or costly to undo.",
    args=EnterPlanModeArgs,
    risk="state",
    summary=lambda args: f"Plan first{': ' if args.reason else ''}{args.reason}",
    # The batch's join switches the mode, which applies from the next batch on.
    run=always(ToolResult(status="success", content=_BEGINS)),
)
