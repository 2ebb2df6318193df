"""control: what changes only the run: plan mode, modes of work, agents, tasks, skills, steps, a scratchpad, the result.

And the calls of MCP servers by name, which the graph answers, too.
"""

import json
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, JsonValue, field_validator, model_validator
from pydantic.json_schema import SkipJsonSchema

from interlock.state.calls import ToolResult, error_result
from interlock.state.task import parse_todo_steps, validate_todo_steps
from interlock.state.text import format_count
from interlock.state.tooling import Args, Tool, ToolContext, make_run_that_returns


class EnterPlanModeArgs(Args):
    reason: str = Field(default="", description="Why to plan first.")


_BEGINS = (
    "Plan mode begins. You can read, search and ask; everything else is refused until the user has approved a plan. "
    "Find out what is wanted, read the code that the change touches, then write the plan with write_file to a relative "
    "path that ends in .md (it lands in the run's plans folder): the goal, what you found, the steps as check boxes "
    "(- [ ] …), how it is verified. Then call exit_plan_mode with that name."
)


ENTER_PLAN_MODE = Tool(
    name="enter_plan_mode",
    description="Switches to plan mode: you read, ask and write a plan, and nothing is changed until the user has"
    " approved it. For work that is large, vague, or costly to undo.",
    args=EnterPlanModeArgs,
    risk="state",
    summary=lambda args: f"Plan first{': ' if args.reason else ''}{args.reason}",
    # The batch's join switches the mode, which applies from the next batch on.
    run=make_run_that_returns(ToolResult(status="success", content=_BEGINS)),
)


class ExitPlanModeArgs(Args):
    plan_filename: str = Field(
        min_length=1, description="Name of the plan file (*.md) in the plans folder, as you wrote it."
    )
    plan: SkipJsonSchema[str | None] = Field(
        default=None, description="Set only by a person's edit: the plan's new text."
    )
    approval_mode: SkipJsonSchema[Literal["default", "auto_edit"] | None] = Field(
        default=None, description="Set only by a person's edit: the mode to continue in."
    )


EXIT_PLAN_MODE = Tool(
    name="exit_plan_mode",
    description="Submits the finished plan for the user's review. If approved, plan mode ends; otherwise you learn what"
    " to change.",
    args=ExitPlanModeArgs,
    risk="state",
    kind="review",
    summary=lambda args: f"Review the plan {args.plan_filename}",
    # Only reached if nobody can review: normally the graph asks a person.
    run=make_run_that_returns(
        error_result("no_review", "The plan can't be reviewed here; say in your answer what it is.")
    ),
)


class SwitchModeArgs(Args):
    mode_slug: str = Field(min_length=1, description="Slug of the mode.")
    reason: str = Field(default="", description="Why it fits better, in one sentence.")


async def _run_switch_mode(args: SwitchModeArgs, context: ToolContext) -> ToolResult:  # noqa: ARG001 - every tool has this shape
    because = f" because: {args.reason.strip()}" if args.reason.strip() else ""
    text = f"You continue in mode {args.mode_slug!r}{because}. Its tools and rules apply from now on."
    return ToolResult(
        status="success", content=text, meta={"switch_to_mode": args.mode_slug, "summary": args.mode_slug}
    )


SWITCH_MODE = Tool(
    name="switch_mode",
    description="Switches to another mode of work, with its tools and rules; the user is asked.",
    args=SwitchModeArgs,
    risk="state",
    summary=lambda args: f"Switch to mode {args.mode_slug}" + (f": {args.reason}" if args.reason else ""),
    run=_run_switch_mode,
)


class FetchInstructionsArgs(Args):
    task: Literal["create_mcp_server", "create_mode"] = Field(
        description="What is to be made: create_mcp_server (tools of a server of your own), create_mode (a mode with"
        " its own role and tools)."
    )


async def _run_fetch_instructions(args: FetchInstructionsArgs, context: ToolContext) -> ToolResult:
    return ToolResult(status="success", content=context.instructions(args.task), meta={"summary": args.task})


FETCH_INSTRUCTIONS = Tool(
    name="fetch_instructions",
    description="Returns the instructions for one of a few tasks that are about this program itself. Read them before"
    " you begin such a task.",
    args=FetchInstructionsArgs,
    risk="read",
    summary=lambda args: f"Read how to {args.task.replace('_', ' ')}",
    run=_run_fetch_instructions,
)


class InvokeAgentArgs(Args):
    agent_name: str = Field(min_length=1, description="Name of the agent.")
    prompt: str = Field(
        default="",
        description="The complete task: the agent sees nothing of this conversation. Say what you want, what you know,"
        " and what the result should contain.",
    )
    inputs: dict[str, JsonValue] = Field(
        default_factory=dict[str, JsonValue],
        description="Instead of a prompt, for agents that name their inputs.",
    )

    @model_validator(mode="after")
    def _require_prompt_or_inputs(self) -> "InvokeAgentArgs":
        if not self.prompt.strip() and not self.inputs:
            raise ValueError("'prompt' is missing: say what the agent should do")
        return self


NO_LEVEL_LEFT = make_run_that_returns(
    error_result("too_deep", "No sub-agent can be started from here; do the work yourself.")
)
"""Only reached if the depth limit is used up: normally the graph runs the sub-agent and answers the call."""
INVOKE_AGENT = Tool(
    name="invoke_agent",
    description="Delegates work to a sub-agent, which has its own conversation and returns its result. Several calls in"
    " one message run side by side.",
    args=InvokeAgentArgs,
    risk="state",
    kind="agent",
    summary=lambda args: f"Agent {args.agent_name}: {args.prompt}",
    run=NO_LEVEL_LEFT,
)


class InvestigatorArgs(Args):
    objective: str = Field(
        min_length=1,
        description="The user's request word for word, then what else you want to know about the code base.",
    )


CODEBASE_INVESTIGATOR = Tool(
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


class NewTaskArgs(Args):
    mode: str = Field(min_length=1, description="Slug of the mode that the task starts in.")
    message: str = Field(
        min_length=1,
        description="The task, with everything that it needs to know: it sees nothing of this conversation.",
    )
    todos: Annotated[str, AfterValidator(validate_todo_steps)] = Field(
        default="", description="Its initial list of steps, one `[ ] step` per line; optional."
    )

    @field_validator("message")
    @classmethod
    def _unescape_mentions(cls, value: str) -> str:
        """Unescape mentions: escaped for this conversation, they count in the next (Roo Code)."""
        return value.replace("\\\\@", "\\@")


async def _run_new_task(args: NewTaskArgs, context: ToolContext) -> ToolResult:  # noqa: ARG001 - every tool has this shape
    task = {"mode": args.mode, "message": args.message, "todos": args.todos}
    text = f"The task begins in mode {args.mode!r}. Its result comes as the next message."
    return ToolResult(status="success", content=text, meta={"subtask": {**task}, "summary": args.mode})


NEW_TASK = Tool(
    name="new_task",
    description="Delegates part of the work to a task with its own conversation, in a suitable mode; the user is asked."
    " This task waits for its result.",
    args=NewTaskArgs,
    risk="state",
    summary=lambda args: f"New task in mode {args.mode}: {args.message}",
    run=_run_new_task,
)


class ActivateSkillArgs(Args):
    name: str = Field(min_length=1, description="Name of the skill.")
    file: str | None = Field(
        default=None,
        min_length=1,
        description="Another file of the skill, by its path in the skill's folder. Default: the instructions.",
    )


ACTIVATE_SKILL = Tool(
    name="activate_skill",
    description="Returns the instructions of a skill: how the user wants a kind of work to be done here.",
    args=ActivateSkillArgs,
    risk="read",
    summary=lambda args: f"Skill {args.name}" + (f": {args.file}" if args.file else ""),
    run=make_run_that_returns(error_result("no_skill", "No skills are available.")),
)


class FindSkillsArgs(Args):
    words: str = Field(min_length=1, description="Words of the skill's name or description; any number.")


FIND_SKILLS = Tool(
    name="find_skills",
    description="Lists the skills whose names or descriptions hold these words, with their whole descriptions.",
    args=FindSkillsArgs,
    risk="read",
    summary=lambda args: f"Find skills: {args.words}",
    run=make_run_that_returns(error_result("no_skill", "No skills are available.")),
)


class UseMcpToolArgs(Args):
    server_name: str = Field(min_length=1, description="Name of the server.")
    tool_name: str = Field(min_length=1, description="Name of its tool, as the server has it.")
    arguments: dict[str, JsonValue] = Field(
        default_factory=dict[str, JsonValue], description="The tool's arguments."
    )

    @field_validator("arguments", mode="before")
    @classmethod
    def _parse_json_arguments(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return json.loads(value) if value.strip() else {}
        except (ValueError, RecursionError):
            raise ValueError("expected one JSON object") from None


USE_MCP_TOOL = Tool(
    name="use_mcp_tool",
    description="Calls a tool of an MCP server.",
    args=UseMcpToolArgs,
    risk="execute",
    summary=lambda args: f"{args.server_name}: {args.tool_name}",
    # Normally the graph calls the server's tool instead; this answers if there is none.
    run=make_run_that_returns(error_result("mcp_unavailable", "No such server.")),
)


class AccessMcpResourceArgs(Args):
    server_name: str = Field(min_length=1, description="Name of the server.")
    uri: str = Field(min_length=1, description="The resource's address.")


ACCESS_MCP_RESOURCE = Tool(
    name="access_mcp_resource",
    description="Reads a resource of an MCP server.",
    args=AccessMcpResourceArgs,
    risk="network",
    summary=lambda args: f"{args.server_name}: {args.uri}",
    # As with use_mcp_tool.
    run=make_run_that_returns(error_result("mcp_unavailable", "No such server.")),
)


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
    def _require_at_most_one_active_step(self) -> "WriteTodosArgs":
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
    todos: Annotated[str, AfterValidator(validate_todo_steps)] = Field(
        description="The whole list, one step a line, in order: `[ ] step` is to be done, `[-] step` is being done,"
        " `[x] step` is done. It replaces the list before."
    )


async def _run_update_todo_list(args: UpdateTodoListArgs, context: ToolContext) -> ToolResult:  # noqa: ARG001 - every tool has this shape
    steps = parse_todo_steps(args.todos)
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
    summary=lambda args: f"Steps: {len(parse_todo_steps(args.todos))}",
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
    run=make_run_that_returns(ToolResult(status="success", content="The scratchpad is updated.")),
)


def _make_nonblank_validator(expected_content: str) -> AfterValidator:
    def says_something(value: str) -> str:
        if not value.strip():
            raise ValueError(f"the result is blank; write down {expected_content}")
        return value

    return AfterValidator(says_something)


class CompleteTaskArgs(Args):
    result: Annotated[str, _make_nonblank_validator("what you found or did")] = Field(
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
    run=make_run_that_returns(ToolResult(status="success", content="The result was returned.")),
)


class AttemptCompletionArgs(Args):
    result: Annotated[str, _make_nonblank_validator("what was done")] = Field(
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
