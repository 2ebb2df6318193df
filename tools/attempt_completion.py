"""attempt_completion: the task loop's last call, which submits its result."""

from pydantic import Field, field_validator
from pydantic.json_schema import SkipJsonSchema

from interlock.state.calls import ToolResult
from interlock.state.tooling import Args, Tool, ToolContext


class AttemptCompletionArgs(Args):
    result: str = Field(
        min_length=1,
        description="The result, final: what was done, where, and how it was verified. No question, no offer of help.",
    )
    command: SkipJsonSchema[str | None] = Field(
        default=None, description="Ignored; older prompts ask for it."
    )

    @field_validator("result")
    @classmethod
    def _says_something(cls, value: str) -> str:
        if not value.strip():
            raise ValueError("the result is blank; write down what was done")
        return value


async def run(args: AttemptCompletionArgs, context: ToolContext) -> ToolResult:  # noqa: ARG001 - every tool has this shape
    meta = {"completed": args.result, "summary": "the result"}
    return ToolResult(status="success", content="The result was handed over.", meta={**meta})


TOOL = Tool(
    name="attempt_completion",
    description="Hands over the result of the task. Call it when everything is done and every call before it has"
    " succeeded. The user may answer with what is still to be done.",
    args=AttemptCompletionArgs,
    risk="state",
    summary=lambda _: "Hand over the result",
    run=run,
)
