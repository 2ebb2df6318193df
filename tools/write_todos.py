"""write_todos: the model's own todo list."""

from typing import Literal

from pydantic import Field, model_validator

from interlock.state.calls import ToolResult
from interlock.state.tooling import Args, Tool, ToolContext

_MARKS = {"pending": "[ ]", "in_progress": "[>]", "completed": "[x]", "cancelled": "[-]"}


class Todo(Args):
    description: str = Field(min_length=1, description="The step, in one line.")
    status: Literal["pending", "in_progress", "completed", "cancelled"] = Field(
        description="Where the step is."
    )


class WriteTodosArgs(Args):
    todos: list[Todo] = Field(
        description="The whole list, in order; it replaces the one before. Empty: no list."
    )

    @model_validator(mode="after")
    def _one_at_a_time(self) -> "WriteTodosArgs":
        active = sum(todo.status == "in_progress" for todo in self.todos)
        if active > 1:
            raise ValueError(f"{active} steps are in_progress, expected at most one")
        return self


async def run(args: WriteTodosArgs, context: ToolContext) -> ToolResult:  # noqa: ARG001 - every tool has this shape
    lines = [f"{_MARKS[todo.status]} {todo.description}" for todo in args.todos]
    text = "\n".join(["The list is now:", *lines]) if lines else "The list is empty now."
    return ToolResult(
        status="success",
        content=text,
        meta={"summary": _summary(args), "todos": [todo.model_dump() for todo in args.todos]},
    )


def _summary(args: WriteTodosArgs) -> str:
    done = sum(todo.status == "completed" for todo in args.todos)
    active = next((todo.description for todo in args.todos if todo.status == "in_progress"), "")
    return f"Steps: {done} of {len(args.todos)} done" + (f", now: {active}" if active else "")


TOOL = Tool(
    name="write_todos",
    description="Writes down the steps of a larger task, so that you and the user see where it stands. Use it when"
    " there are three steps or more; mark a step in_progress when you begin it and completed when it is done, one at a"
    " time.",
    args=WriteTodosArgs,
    risk="state",
    summary=_summary,
    run=run,
)
