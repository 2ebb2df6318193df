"""run: what every workflow takes, what all states have, and what a node reads and writes, declared with it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, JsonValue
from typing_extensions import TypedDict

from interlock.state.calls import ApprovalMode
from interlock.state.errors import RunError, SetupError
from interlock.state.messages import Origin

if TYPE_CHECKING:
    from langgraph.runtime import Runtime

MAX_TURNS = 100
"""Turns per prompt (gemini-cli's MAX_TURNS)."""


Protocol = Literal["native", "xml"]
"""How a model calls tools: as its provider has it, or by tags in its text."""


class Closed(BaseModel):
    """An unknown key is an error."""

    model_config = ConfigDict(extra="forbid")


class Limits(Closed):
    """What a run may use. Turns are model turns; -1 means no limit."""

    max_turns: int = Field(MAX_TURNS, ge=0, description="model turns per prompt")
    max_session_turns: int = Field(
        -1, ge=-1, description="model turns over all prompts of the run; -1: no limit"
    )
    max_tokens: int | None = Field(None, ge=1, description="input and output tokens over the whole run")
    max_budget_usd: float | None = Field(None, gt=0, description="money over the whole run, in US dollars")
    timeout_s: float | None = Field(
        None, gt=0, description="seconds of running, waiting for people not counted"
    )


class WorkflowInput(Closed):
    """The fields that every workflow's input has."""

    workspace: str | None = Field(None, description="directory to work in; default: the working directory")
    model: str | None = Field(None, description="alias, Gemini id, provider:model or script:FILE")
    approval_mode: ApprovalMode | None = Field(None, description="default | auto_edit | plan | yolo")
    mode: str | None = Field(None, description="mode of work: architect, code, ask, … (interlock modes)")
    protocol: Protocol | None = Field(None, description="native | xml: how the model calls tools")
    limits: Limits = Field(default_factory=lambda: Limits.model_validate({}))


def newest(old: str, new: str) -> str:  # noqa: ARG001 - a reducer has this shape
    """Reducer: of branches that write at once any may stand; who goes by it reads it where it was written."""
    return new


class RunChannels(TypedDict, total=False):
    """Channels of every graph: parts hand them on, senders send them on."""

    agent: Annotated[str, newest]
    """Record of the sub-agent that the graph works for; empty: the root."""
    hooked: Annotated[str, newest]
    """The events that have hooks (`Hooks.configured`)."""
    mode: Annotated[str, newest]
    """Slug of the mode of work (`state/mode.py`); empty: there is none, nothing is held back for it."""
    protocol: Annotated[str, newest]
    """`Protocol`; empty: native."""


HookEvent = Literal[
    "BeforeAgent",
    "AfterAgent",
    "BeforeModel",
    "AfterModel",
    "BeforeToolSelection",
    "BeforeTool",
    "AfterTool",
    "SessionStart",
    "SessionEnd",
    "PreCompress",
    "Notification",
]


def is_hooked(state: RunChannels, event: HookEvent) -> bool:
    """Whether an event is among the names of the `hooked` channel."""
    return event in state.get("hooked", "").split(",")


class Labelled(RunChannels, total=False):
    """The base of every pipeline's state."""

    label: Annotated[str, newest]
    """What the last node decided, where its edge goes by that."""


class HistoryMessage(Closed):
    """A message at the door: `{role, content, tool_calls?, tool_call_id?}`."""

    role: Literal["user", "assistant", "tool", "system"]
    content: str | list[dict[str, JsonValue]] = ""
    tool_calls: list[dict[str, JsonValue]] = []
    tool_call_id: str | None = None
    name: str | None = None
    status: Literal["success", "error", "cancelled"] | None = None
    origin: Origin | None = None
    thought: str | None = None
    signature: str | None = None


class WorkflowOutput(Closed):
    """Base of every workflow's output."""


class ErrorInfo(Closed):
    """Why a run did not end well."""

    type: str
    message: str


_F = TypeVar("_F", bound=Callable[..., Any])
_ATTRIBUTE = "__interlock_node__"


@dataclass(frozen=True)
class NodeSpec:
    """A node's declaration: keys of the state of the graph in which it stands, which gives their types."""

    reads: tuple[str, ...]
    writes: tuple[str, ...]
    labels: tuple[str, ...] = ()
    """What it may write as `label`; an edge that maps labels has exactly these."""
    pure: bool = False
    """It has no effect outside its update and asks no service that has one: it may share a superstep with its
    neighbours, and run twice after a kill."""
    recorded: bool = False
    """What it does outside its update is recorded, and found again when it runs again: it may share a superstep with
    pure nodes around it."""
    outside: bool = False
    """It reads files, an index or a clock, which may be others later: a replay has what it wrote then, where it stands
    in the graph that a user started. What parts read is in records, or in the journal, or the part says so, too."""
    timeout_s: float | None = None
    """Seconds for one try; then its label is `timeout` where it has that, else the run fails and can be resumed."""
    retries: int = 0
    """Further tries after an error; then its label is `failed` where it has that, else the run fails with the error."""
    retry_wait_s: float = 1.0
    """Before the first of them; each wait is twice the one before."""


def node(
    *,
    reads: tuple[str, ...] = (),
    writes: tuple[str, ...] = (),
    labels: tuple[str, ...] = (),
    pure: bool = False,
    recorded: bool = False,
    outside: bool = False,
    timeout_s: float | None = None,
    retries: int = 0,
    retry_wait_s: float = 1.0,
) -> Callable[[_F], _F]:
    """Declare a node. Keys that it reads are what it is given; an update with any other key than `writes` is an error.

    A node with `labels` also writes `label`. Raises `SetupError` for limits that can't be.
    """
    if retries < 0 or retry_wait_s < 0 or (timeout_s is not None and timeout_s <= 0):
        raise SetupError(
            f"retries={retries}, retry_wait_s={retry_wait_s}, timeout_s={timeout_s}: expected more."
        )
    written = (*writes, "label") if labels and "label" not in writes else writes

    def mark(function: _F) -> _F:
        spec = NodeSpec(reads, written, labels, pure, recorded, outside, timeout_s, retries, retry_wait_s)
        setattr(function, _ATTRIBUTE, spec)
        return function

    return mark


def spec_of(function: Callable[..., Any]) -> NodeSpec | None:
    return getattr(function, _ATTRIBUTE, None)


def inside(task: str) -> str:
    """Id of what a graph that is a node does in that node's own task, or superstep."""
    return f"{task}.0"


def task_of(runtime: "Runtime[Any]", role: str) -> str:
    """The graph task that asks: a reply is recorded by it, so that a kill doesn't pay twice."""
    if runtime.execution_info is None:
        raise RunError(f"{role} was asked outside a graph.")
    return runtime.execution_info.task_id
