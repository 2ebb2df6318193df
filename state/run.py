"""run: base input, base state and node declarations for all workflows."""

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
"""How a model calls tools: the provider's native way, or by tags in its text."""


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
    """Reducer for concurrent writers: either value may win, so only the writing branch may rely on it."""
    return new


class RunChannels(TypedDict, total=False):
    """Channels of every graph, passed down to parts and through sends."""

    agent: Annotated[str, newest]
    """Record of the sub-agent the graph works for; empty: the root."""
    hooked: Annotated[str, newest]
    """Events that have hooks (`Hooks.configured`)."""
    mode: Annotated[str, newest]
    """Slug of the mode of work (`state/mode.py`); empty: none, so nothing is restricted."""
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
    """Whether the `hooked` channel lists the event."""
    return event in state.get("hooked", "").split(",")


class Labelled(RunChannels, total=False):
    """Base of every pipeline's state."""

    label: Annotated[str, newest]
    """The last node's decision, if an edge depends on it."""


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
    """A node's declaration: keys of the state of its graph, which defines their types."""

    reads: tuple[str, ...]
    writes: tuple[str, ...]
    labels: tuple[str, ...] = ()
    """Values it may write to `label`; an edge that maps labels has exactly these."""
    pure: bool = False
    """No effect outside its update, and no use of services that have one: it may share a superstep with its neighbours,
    and run twice after a kill."""
    recorded: bool = False
    """Its outside effects are recorded and found again on a rerun: it may share a superstep with pure neighbours."""
    outside: bool = False
    """Reads files, an index or a clock, which may change: on replay its recorded update is used, for nodes of the
    top-level graph. What parts read is in records or the journal, or the part is declared so too."""
    timeout_s: float | None = None
    """Timeout of one try; the label is then `timeout` if declared, else the run fails and can be resumed."""
    retries: int = 0
    """Retries after an error; the label is then `failed` if declared, else the run fails with the error."""
    retry_wait_s: float = 1.0
    """Wait before the first retry; doubles with each one."""


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
    """Declare a node. It receives only the keys in `reads`; updating a key not in `writes` is an error.

    A node with `labels` also writes `label`. Raises `SetupError` for impossible limits.
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
    """Id for what a subgraph does in its parent node's task or superstep."""
    return f"{task}.0"


def task_of(runtime: "Runtime[Any]", role: str) -> str:
    """The requesting graph task: replies are recorded under it, so that a kill doesn't pay twice."""
    if runtime.execution_info is None:
        raise RunError(f"{role} was asked outside a graph.")
    return runtime.execution_info.task_id
