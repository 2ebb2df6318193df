"""activate_skill: read a skill's instructions, or another of its files, when needed."""

from pydantic import Field

from interlock.state.calls import failure
from interlock.state.tooling import Args, Tool, always


class ActivateSkillArgs(Args):
    name: str = Field(min_length=1, description="Name of the skill.")
    file: str | None = Field(
        default=None,
        min_length=1,
        description="Another file of the skill, by its path in the skill's folder. Default: the instructions.",
    )


TOOL = Tool(
    name="activate_skill",
    description="Returns the instructions of a skill: how the user wants a kind of work to be done here.",
    args=ActivateSkillArgs,
    risk="read",
    summary=lambda args: f"Skill {args.name}" + (f": {args.file}" if args.file else ""),
    run=always(failure("no_skill", "There are no skills here.")),
)
