"""complete_task: a sub-agent's last call, which submits its result."""

from pydantic import Field, field_validator

from interlock.state.calls import ToolResult
from interlock.state.tooling import Args, Tool, always


class CompleteTaskArgs(Args):
    result: str = Field(
        min_length=1,
        description="The whole result, for a reader who has seen nothing of your work: what you found or did, where, "
        "and what is left open.",
    )

    @field_validator("result")
    @classmethod
    def _says_something(cls, value: str) -> str:
        if not value.strip():
            raise ValueError("the result is blank; write down what you found or did")
        return value


TOOL = Tool(
    name="complete_task",
    description="Ends your work and hands over its result. Call it once, when everything is done.",
    args=CompleteTaskArgs,
    risk="state",
    summary=lambda _: "Hand over the result",
    # The graph reads the result from the call and ends the agent.
    run=always(ToolResult(status="success", content="The result was handed over.")),
)
