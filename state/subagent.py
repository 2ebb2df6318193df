"""subagent: what a sub-agent is, and the state, input and output of its run."""

from typing import Annotated, Literal

from pydantic import Field, JsonValue
from typing_extensions import TypedDict

from interlock.state.calls import OneCall
from interlock.state.chart_channels import ApprovalModeState
from interlock.state.conversation import BatchEnd, Conversation
from interlock.state.messages import Frozen
from interlock.state.run import (
    OF_PROCESS,
    Closed,
    ErrorInfo,
    Labelled,
    WorkflowInput,
    WorkflowOutput,
    keep_newest,
)

MAX_TURNS, MAX_TIME_MINUTES = 30, 10.0
"""Defaults for agents that don't set them (gemini-cli's)."""
GRACE_S = 60.0
"""Seconds for the single turn a sub-agent gets after its limit (gemini-cli's recovery turn)."""
MAX_DEPTH = 2
"""Levels of sub-agents below the main agent (settings: `agents.maxDepth`)."""
MOST_DEPTH = 4
"""Maximum of the setting: each level is a copy of the graph."""

EndReason = Literal["goal", "max_turns", "timeout", "no_complete_task", "aborted", "error"]


BUILT_IN = "interlock"
"""Where the definitions of the package come from."""


class AgentDefinition(Frozen):
    """One kind of agent, as described by a Markdown file."""

    name: str = Field(min_length=1)
    """Letters, digits, blanks and some signs, but no colon, slash or quote: it stands in paths and rules."""
    description: str = Field(min_length=1)
    tools: tuple[str, ...] | None = None
    """Names of tools it may call; None: all except those that start agents or change plan mode."""
    model: str = "inherit"
    """An alias or a model name; `inherit`: the run's."""
    role: str = "main"
    """Role of its model if `model` is `inherit`; see `model.roles` in settings."""
    temperature: float | None = None
    max_turns: int = Field(MAX_TURNS, ge=1, le=100_000)
    max_time_minutes: float = Field(MAX_TIME_MINUTES, gt=0, le=100_000)
    input_schema: dict[str, JsonValue] | None = None
    """JSON Schema of `inputs`; None: it takes a prompt."""
    output_schema: dict[str, JsonValue] | None = None
    """JSON Schema of the report passed to `complete_task`; None: text."""
    query: str = "{{prompt}}"
    """Template of the first message; `{{name}}` or `${name}` expands to an input."""
    system_prompt: str
    source: str = BUILT_IN
    """The file it was read from."""
    without_tools: tuple[str, ...] = ()
    """Tools that it may not call."""
    only_reads: bool = False
    """It has no tool that writes or runs something."""
    only_for_persons: bool = False
    """Models can't start it."""


class AgentInstance(Frozen):
    """One sub-agent of a run, with its definition frozen at the start: editing the file doesn't affect open runs."""

    path: str
    """`NAME:CALL`, prefixed with the parent's path and a slash; unique in a run and stable across kills."""
    parent: str
    """Id of the agent that started it; empty: the root."""
    call: str
    """Key of the parent's call."""
    depth: int
    """Levels of agents it may still start."""
    definition: AgentDefinition


class SubagentInput(WorkflowInput):
    agent: str = Field("generalist", min_length=1, description="name of the agent")
    prompt: str | None = Field(None, min_length=1, description="what to do ★")
    inputs: dict[str, JsonValue] | None = Field(
        None, description="input for the agent's own schema, instead of a prompt"
    )


class SubagentOutput(WorkflowOutput):
    status: EndReason
    result: str
    reason: str
    turns: int
    duration_s: float
    error: ErrorInfo | None = None


class Scratchpad(TypedDict, total=False):
    """An investigator's findings so far; typed, so that compression can't lose them."""

    checklist: list[str]
    questions: list[str]
    """Open questions."""
    findings: list[str]
    ignored_paths: list[str]


class SubagentState(Labelled, OneCall, Conversation, BatchEnd, total=False):
    """State of a sub-agent besides its chain. `message` is the parent's; from the first batch on, the agent's own."""

    call: str
    """Key of the parent's call, which the result answers."""
    prompt: str
    """Chain record (detached) of the task until it is in the conversation."""
    approval_mode: ApprovalModeState
    approved_plan: bool
    time_left_s: Annotated[float, OF_PROCESS]
    """Time limit of the next turn."""
    scratchpad: Scratchpad
    sent_back: bool
    recovering: bool
    """The last chance was used."""
    reason: str
    """Why it must end (`EndReason`); empty: it continues."""
    answer: str
    """Record of the reply whose `complete_task` counts."""
    status: str


class SubagentIn(OneCall, total=False):
    """What a parent passes in: the call, and the rules it runs under."""

    agent: str
    approval_mode: ApprovalModeState


class SubagentOut(TypedDict, total=False):
    """What a parent gets back: nothing; the result is the call's journal row."""

    label: Annotated[str, keep_newest]


INVESTIGATOR = "codebase_investigator"


class Location(Closed):
    """A place in the code that matters."""

    FilePath: str = Field(description="path of the file, relative to the workspace")
    Reasoning: str = Field(description="why it matters for the objective")
    KeySymbols: list[str] = Field(description="functions, classes and names in it that matter")


class Report(Closed):
    """What an investigation found."""

    SummaryOfFindings: str = Field(description="the findings, and what follows from them for the objective")
    ExplorationTrace: list[str] = Field(description="step by step, what was looked at and why")
    RelevantLocations: list[Location] = Field(description="the places that matter, the most important first")


class InvestigateInput(WorkflowInput):
    objective: str = Field(
        min_length=1, description="the user's request verbatim, and what else you want to know ★"
    )


class InvestigateOutput(WorkflowOutput):
    status: EndReason
    report: Report | None = None
    partial: str | None = None
    """Partial findings, if there is no valid report."""
    reason: str | None = None
    error: ErrorInfo | None = None
