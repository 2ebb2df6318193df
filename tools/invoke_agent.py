"""invoke_agent: delegate work to a sub-agent."""

from pydantic import Field, JsonValue, model_validator

from interlock.state.calls import failure
from interlock.state.tooling import Args, Tool, always


class InvokeAgentArgs(Args):
    agent_name: str = Field(min_length=1, description="Name of the agent.")
    prompt: str = Field(
        default="",
        description="What it shall do, whole: it sees nothing of this conversation. Say what is wanted, what is known,"
        " and what the result shall hold.",
    )
    inputs: dict[str, JsonValue] = Field(
        default_factory=dict[str, JsonValue],
        description="Instead of a prompt, for agents that name their inputs.",
    )

    @model_validator(mode="after")
    def _has_work(self) -> "InvokeAgentArgs":
        if not self.prompt.strip() and not self.inputs:
            raise ValueError("'prompt' is missing: say what the agent shall do")
        return self


NO_LEVEL_LEFT = always(failure("too_deep", "No sub-agent can be started from here; do the work yourself."))
"""Only reached if the depth limit is used up: normally the graph runs the sub-agent and answers the call."""
TOOL = Tool(
    name="invoke_agent",
    description="Hands a piece of work to a sub-agent, which works by itself with a history of its own and returns its"
    " result. Several calls in one message run side by side.",
    args=InvokeAgentArgs,
    risk="state",
    kind="agent",
    summary=lambda args: f"Agent {args.agent_name}: {args.prompt}",
    run=NO_LEVEL_LEFT,
)
