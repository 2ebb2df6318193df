"""update_todo_list: the task's steps as a list of check boxes."""

from typing import Annotated

from pydantic import AfterValidator, Field, JsonValue

from interlock.state.calls import ToolResult
from interlock.state.task import all_steps, steps_of
from interlock.state.tooling import Args, Tool, ToolContext


class UpdateTodoListArgs(Args):
    todos: Annotated[str, AfterValidator(all_steps)] = Field(
        description="The whole list, one step a line, in order: `[ ] step` is to be done, `[-] step` is being done,"
        " `[x] step` is done. It replaces the list before."
    )


async def run(args: UpdateTodoListArgs, context: ToolContext) -> ToolResult:  # noqa: ARG001 - every tool has this shape
    steps = steps_of(args.todos)
    todos: list[JsonValue] = [{**step} for step in steps]
    done = sum(step["status"] == "completed" for step in steps)
    summary = f"Steps: {done} of {len(steps)} done"
    return ToolResult(status="success", content=f"{summary}.", meta={"summary": summary, "todos": todos})


TOOL = Tool(
    name="update_todo_list",
    description="Writes down the steps of the task, so that you and the user see where it stands. Use it when there are"
    " three steps or more, and after each step that is done or found.",
    args=UpdateTodoListArgs,
    risk="state",
    summary=lambda args: f"Steps: {len(steps_of(args.todos))}",
    run=run,
)
