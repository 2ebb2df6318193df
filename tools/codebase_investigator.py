"""codebase_investigator: the investigating sub-agent as a tool."""

from pydantic import Field

from interlock.state.tooling import Args, Tool
from interlock.tools.invoke_agent import NO_LEVEL_LEFT


class InvestigatorArgs(Args):
    objective: str = Field(
        min_length=1,
        description="The user's request word for word, then what else you want to know about the code base.",
    )


TOOL = Tool(
    name="codebase_investigator",
    description="A sub-agent that finds out how the code base does something and where a change belongs. It only reads,"
    " and returns a report: findings, what it looked at, relevant locations with reasons and symbols. Use it before"
    " changes that reach across the code base, for root causes, and for vague requests.",
    args=InvestigatorArgs,
    risk="state",
    kind="agent",
    summary=lambda args: f"Investigate: {args.objective}",
    run=NO_LEVEL_LEFT,
)
