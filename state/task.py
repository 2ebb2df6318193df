"""task: state, input and output of the task loop, and what its nodes ask of tasks below it."""

from typing import Any, Literal, NamedTuple, Protocol

from pydantic import Field

from interlock.state.conversation import BatchEnd, Conversation, LoopEnd, Refusals
from interlock.state.hooks import HookedPrompt
from interlock.state.main import MainStatus
from interlock.state.plan import PlanMode
from interlock.state.run import ErrorInfo, HistoryMessage, WorkflowInput, WorkflowOutput
from interlock.state.system_prompt import PromptKind

REPEATS = 4
"""Identical calls in a row of which the last is refused (Roo Code: 4)."""
DEEPEST = 10
"""Levels of tasks: a model that hands everything on ends."""
CHILD = "child:"
"""Before the run of a subtask, where an interrupt waits for that; others hold the key of a request."""


class TaskInput(WorkflowInput):
    """Input of `task`."""

    prompt: str = Field(min_length=1, description="what to do ★")
    resume: list[HistoryMessage] = Field(
        default_factory=list[HistoryMessage],
        description="an earlier conversation to go on from; its calls without an answer are answered as interrupted",
    )
    todos: str | None = Field(None, description="first list of steps, one `[ ] step` a line")


class TaskOutput(WorkflowOutput):
    """Output of `task`."""

    status: MainStatus
    result: str
    """What `attempt_completion` handed over; empty: nothing yet."""
    response: str
    """The same, else the last words of the model."""
    history: list[dict[str, Any]]
    todos: list[dict[str, str]]
    mode: str
    mistakes: int
    """In a row, when it ended."""
    children: list[str]
    """Runs of its subtasks."""
    stats: dict[str, Any]
    error: ErrorInfo | None = None


class TaskState(HookedPrompt, Conversation, PlanMode, BatchEnd, LoopEnd, PromptKind, total=False):
    """What a `task` run knows besides its chain."""

    prompt: str
    """Chain record (detached) of a prompt that isn't in the conversation yet; empty: there is none."""
    first_todos: str
    """The steps that the task was given, as they were written; empty: none, or they are taken."""
    withheld: dict[str, str]
    """Index of each call of the reply that isn't to be run → why: `second` or `repeated`."""
    call_key: str
    """Hash of the last call, by its name and arguments."""
    repeats: int
    """How often it came in a row."""
    mistakes: int
    """In a row."""
    depth: int
    """Tasks above it."""
    path: str
    """Of the tasks above it and itself: ids of the calls; empty: the root."""
    child: str
    """The run of the subtask that is waited for; empty: none."""
    children: list[str]
    result: str
    """Chain record of what was handed over."""
    noted_epoch: int
    status: str


class Subtask(NamedTuple):
    """A task that another one asks for."""

    call: str
    """Id of the call."""
    mode: str
    message: str
    todos: str


class TaskEnd(NamedTuple):
    """How a subtask ended."""

    how: Literal["done", "cancelled", "removed"]
    result: str
    refused: Refusals


class Tasks(Protocol):
    """Subtasks: linked `task` runs."""

    def begin(self, subtask: Subtask, parent: TaskState) -> str:
        """Begin the run, which whoever drives this one drives next; its id, the same when called twice."""
        ...

    def end(self, run: str) -> TaskEnd | None:
        """None: it hasn't ended."""
        ...
