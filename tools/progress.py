"""progress: what a model writes down of its work: steps, an investigator's scratchpad, and the result that ends it."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, JsonValue, model_validator
from pydantic.json_schema import SkipJsonSchema

from interlock.state.calls import ToolResult
from interlock.state.task import check_all_steps, parse_steps_of_todos
from interlock.state.text import format_count
from interlock.state.tooling import Args, Tool, ToolContext, answered_by_graph

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
    def _allow_one_active_step(self) -> "WriteTodosArgs":
        active = sum(todo.status == "in_progress" for todo in self.todos)
        if active > 1:
            raise ValueError(f"{active} steps are in_progress, expected at most one")
        return self


async def _run_write_todos(args: WriteTodosArgs, context: ToolContext) -> ToolResult:  # noqa: ARG001 - every tool has this shape
    lines = [f"{_MARKS[todo.status]} {todo.description}" for todo in args.todos]
    text = "\n".join(["The list is now:", *lines]) if lines else "The list is empty now."
    return ToolResult(
        status="success",
        content=text,
        meta={"summary": _summarize_todos(args), "todos": [todo.model_dump() for todo in args.todos]},
    )


def _summarize_todos(args: WriteTodosArgs) -> str:
    done = sum(todo.status == "completed" for todo in args.todos)
    active = next((todo.description for todo in args.todos if todo.status == "in_progress"), "")
    return f"Steps: {done} of {len(args.todos)} done" + (f", now: {active}" if active else "")


WRITE_TODOS = Tool(
    name="write_todos",
    description="Records the steps of a larger task, so that you and the user see its progress. Use it for three steps"
    " or more; mark a step in_progress when you start it and completed when it is done, one at a time.",
    args=WriteTodosArgs,
    risk="state",
    summary=_summarize_todos,
    run=_run_write_todos,
)


class UpdateTodoListArgs(Args):
    todos: Annotated[str, AfterValidator(check_all_steps)] = Field(
        description="The whole list, one step a line, in order: `[ ] step` is to be done, `[-] step` is being done,"
        " `[x] step` is done. It replaces the list before."
    )


async def _run_update_todo_list(args: UpdateTodoListArgs, context: ToolContext) -> ToolResult:  # noqa: ARG001 - every tool has this shape
    steps = parse_steps_of_todos(args.todos)
    todos: list[JsonValue] = [{**step} for step in steps]
    done = sum(step["status"] == "completed" for step in steps)
    summary = f"Steps: {done} of {len(steps)} done"
    return ToolResult(status="success", content=f"{summary}.", meta={"summary": summary, "todos": todos})


UPDATE_TODO_LIST = Tool(
    name="update_todo_list",
    description="Records the steps of the task, so that you and the user see its progress. Use it for three steps or"
    " more, and after each step that you finish or discover.",
    args=UpdateTodoListArgs,
    risk="state",
    summary=lambda args: f"Steps: {len(parse_steps_of_todos(args.todos))}",
    run=_run_update_todo_list,
)


class UpdateScratchpadArgs(Args):
    checklist: list[str] | None = Field(
        default=None, description="What is left to look at. Replaces the old list; leave it out to keep that."
    )
    questions: list[str] | None = Field(
        default=None,
        description="Questions that are still open. Replaces the old list; [] when all are answered.",
    )
    findings: list[str] = Field(
        default_factory=list[str], description="New findings, each with its file. Added to the old ones."
    )
    ignored_paths: list[str] = Field(
        default_factory=list[str],
        description="New paths that turned out not to matter. Added to the old ones.",
    )


UPDATE_SCRATCHPAD = Tool(
    name="update_scratchpad",
    description="Updates your scratchpad: what to look at, what is open, what you found, what doesn't matter. Call it"
    " in every turn, together with other calls.",
    args=UpdateScratchpadArgs,
    risk="state",
    summary=lambda args: f"Scratchpad: {format_count(len(args.findings), 'new finding')}",
    # The graph keeps the scratchpad; the call has only the changes.
    run=answered_by_graph(ToolResult(status="success", content="The scratchpad is updated.")),
)


def _require_text(what: str) -> AfterValidator:
    def says_something(value: str) -> str:
        if not value.strip():
            raise ValueError(f"the result is blank; write down {what}")
        return value

    return AfterValidator(says_something)


class CompleteTaskArgs(Args):
    result: Annotated[str, _require_text("what you found or did")] = Field(
        min_length=1,
        description="The whole result, for a reader who has seen nothing of your work: what you found or did, where, "
        "and what is left open.",
    )


COMPLETE_TASK = Tool(
    name="complete_task",
    description="Ends your work and returns its result. Call it once, when everything is done.",
    args=CompleteTaskArgs,
    risk="state",
    summary=lambda _: "Hand over the result",
    # The graph reads the result from the call and ends the agent.
    run=answered_by_graph(ToolResult(status="success", content="The result was returned.")),
)


class AttemptCompletionArgs(Args):
    result: Annotated[str, _require_text("what was done")] = Field(
        min_length=1,
        description="The result, final: what was done, where, and how it was verified. No question, no offer of help.",
    )
    command: SkipJsonSchema[str | None] = Field(
        default=None, description="Ignored; older prompts ask for it."
    )


async def _run_attempt_completion(args: AttemptCompletionArgs, context: ToolContext) -> ToolResult:  # noqa: ARG001 - every tool has this shape
    meta = {"completed": args.result, "summary": "the result"}
    return ToolResult(status="success", content="The result was returned.", meta={**meta})


ATTEMPT_COMPLETION = Tool(
    name="attempt_completion",
    description="Returns the result of the task. Call it when everything is done and every call before it has"
    " succeeded. The user may answer with what is still missing.",
    args=AttemptCompletionArgs,
    risk="state",
    summary=lambda _: "Hand over the result",
    run=_run_attempt_completion,
)
