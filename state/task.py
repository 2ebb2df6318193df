"""task: state, input and output of the task loop, and the protocol of subtasks."""

import re
from typing import Annotated, Any, Literal, NamedTuple, Protocol

from pydantic import AfterValidator, Field

from interlock.state.checks import CheckedAnswer
from interlock.state.conversation import BatchEnd, Conversation, LoopEnd, Refusals
from interlock.state.hooks import HookedPrompt
from interlock.state.main import MainStatus
from interlock.state.plan import PlanMode
from interlock.state.run import (
    OF_PROCESS,
    ChainHistory,
    ErrorInfo,
    HistoryMessage,
    WorkflowInput,
    WorkflowOutput,
)
from interlock.state.system_prompt import PromptKind

REPEATS = 4
"""Identical consecutive calls, the last of which is refused (Roo Code: 4)."""
DEEPEST = 10
"""Maximum nesting of tasks: stops a model that delegates everything."""
CHILD = "child:"
"""Prefix of a subtask's run id when an interrupt waits for it; other interrupts hold a request's key."""


_STEP = re.compile(r"\s*(?:(?:[-*+]|\d+[.)])\s+)?\[([ xX~-]?)\]\s*(.*\S)\s*")
_ITEM = re.compile(r"\s*(?:[-*+]|\d+[.)])\s+()(?!\[.?\])(.*\S)\s*")
_STATUS = {"": "pending", " ": "pending", "x": "completed", "-": "in_progress", "~": "in_progress"}
"""Roo Code's check marks."""


def parse_todo_steps(text: str) -> list[dict[str, str]]:
    """`{description, status}` of each line that is a step; a list item without a check box is to be done."""
    found = (_STEP.fullmatch(line) or _ITEM.fullmatch(line) for line in text.splitlines())
    return [{"description": m[2], "status": _STATUS[m[1].lower()]} for m in found if m]


def validate_todo_steps(text: str) -> str:
    """`text`, if all its lines are steps or blank; else raises `ValueError` naming the first that is none."""
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not parse_todo_steps(line):
            short = line.strip()[:60]
            raise ValueError(
                f"line {number} ({short!r}) isn't a step, expected `[ ] step`, `[-] step` or `[x] step`"
            )
    return text


class TaskInput(WorkflowInput):
    prompt: str = Field(min_length=1, description="what to do ★")
    resume: list[HistoryMessage] = Field(
        default_factory=list[HistoryMessage],
        description="earlier conversation to continue; its unanswered calls count as interrupted",
    )
    todos: Annotated[str, AfterValidator(validate_todo_steps)] | None = Field(
        None, description="initial list of steps, one `[ ] step` per line"
    )


class TaskOutput(WorkflowOutput):
    status: MainStatus
    result: str
    """The result submitted by `attempt_completion`; empty: none yet."""
    response: str
    """The result, else the model's last text."""
    history: ChainHistory
    todos: list[dict[str, str]]
    mode: str
    mistakes: int
    """Consecutive mistakes at the end."""
    children: list[str]
    """Runs of its subtasks."""
    stats: dict[str, Any]
    error: ErrorInfo | None = None


class TaskState(
    HookedPrompt, CheckedAnswer, Conversation, PlanMode, BatchEnd, LoopEnd, PromptKind, total=False
):
    """State of a `task` run besides its chain."""

    prompt: str
    """Chain record (detached) of a prompt not yet in the conversation; empty: none."""
    first_todos: str
    """The task's initial todo list, as written; empty: none, or already applied."""
    withheld: dict[str, str]
    """Index of each call of the reply not to be run → why: `second` or `repeated`."""
    call_key: str
    """Hash of the last call's name and arguments."""
    repeats: int
    """Consecutive occurrences of that call."""
    mistakes: int
    """Consecutive mistakes."""
    depth: int
    """Number of tasks above it."""
    path: str
    """Call ids of the tasks above it and its own; empty: the root."""
    child: str
    """Run of the pending subtask; empty: none."""
    children: list[str]
    fed_back: bool
    """An AfterAgent hook sent the model on in this prompt (`stop_hook_active`)."""
    noted_epoch: Annotated[int, OF_PROCESS]
    status: str


class Subtask(NamedTuple):
    """A task requested by another task."""

    call: str
    """Id of the call."""
    mode: str
    message: str
    todos: str


class TaskEnd(NamedTuple):
    how: Literal["done", "cancelled", "removed"]
    result: str
    refused: Refusals


class Tasks(Protocol):
    """Subtasks, run as linked `task` runs."""

    def create_subtask_run(self, subtask: Subtask, parent: TaskState) -> str:
        """Create the run, which this run's process drives next; returns its id. Idempotent."""
        ...

    def find_subtask_end(self, run: str) -> TaskEnd | None:
        """How it ended; None: it hasn't."""
        ...
