"""new_task: have part of the work done as a separate task, in the mode that fits."""

from typing import Annotated

from pydantic import AfterValidator, Field, field_validator

from interlock.state.calls import ToolResult
from interlock.state.task import all_steps
from interlock.state.tooling import Args, Tool, ToolContext


class NewTaskArgs(Args):
    mode: str = Field(min_length=1, description="Slug of the mode that the task begins in.")
    message: str = Field(
        min_length=1,
        description="The task, with everything that it needs to know: it sees nothing of this conversation.",
    )
    todos: Annotated[str, AfterValidator(all_steps)] = Field(
        default="", description="Its first list of steps, one `[ ] step` a line; may be left out."
    )

    @field_validator("message")
    @classmethod
    def _unescaped(cls, value: str) -> str:
        """Unescape mentions: escaped for this conversation, they count in the next (Roo Code)."""
        return value.replace("\\\\@", "\\@")


async def run(args: NewTaskArgs, context: ToolContext) -> ToolResult:  # noqa: ARG001 - every tool has this shape
    task = {"mode": args.mode, "message": args.message, "todos": args.todos}
    text = f"The task begins in mode {args.mode!r}. Its result comes as the next message."
    return ToolResult(status="success", content=text, meta={"subtask": {**task}, "summary": args.mode})


TOOL = Tool(
    name="new_task",
    description="Has a part of the work done as a task of its own, with its own conversation, in the mode that fits;"
    " the user is asked. This task waits for its result.",
    args=NewTaskArgs,
    risk="state",
    summary=lambda args: f"New task in mode {args.mode}: {args.message}",
    run=run,
)
