"""tools: state, input and output of tool scheduling and execution."""

from typing import Annotated, Any, Literal

from pydantic import Field
from typing_extensions import TypedDict

from interlock.state.calls import merge_verdicts
from interlock.state.hooks import HookWait
from interlock.state.plan import PlanMode
from interlock.state.refused import Refusals
from interlock.state.run import HistoryMessage, RunChannels, WorkflowInput, WorkflowOutput


class ToolsInput(WorkflowInput):
    """Input of `tools`."""

    calls: list[dict[str, Any]] = Field(min_length=1, description="the calls, each {id, name, args}")
    protocol: Literal["native"] = "native"
    history: list[HistoryMessage] = Field(default_factory=list[HistoryMessage])


class ToolsOutput(WorkflowOutput):
    """Output of `tools`: one response for each call, in the calls' order."""

    responses: list[dict[str, Any]]
    stop: str | None = None


Verdicts = Annotated[dict[str, str], merge_verdicts]
"""Call index → verdict. After decide: `ready ATTEMPT APPROVAL` (`changed`, when a hook made the arguments), `answered`
or `cancel`; after execute: `done`, or `stop`, when a hook ends the run.

All but `ready` and `changed` carry the record of what the model is sent in place of the result, if there is one.
"""


class ToolsState(RunChannels, PlanMode, total=False):
    """What a batch knows besides the chain and the journal."""

    head: str
    """On entry the assistant record with the calls; on exit the last answer."""
    message: str
    """The assistant record whose calls these are."""
    count: int
    """Number of calls in the batch."""
    group: list[int]
    """Indices of the calls that run now, side by side."""
    kinds: dict[str, str]
    """Index of each call of the group → how it is executed: tool, question, agent or review."""
    decided: Verdicts
    finished: Verdicts
    todos: str
    """Chain record (detached) of the newest list of steps; empty: none."""
    stop: str
    """Why the run must end after this batch; empty: it goes on."""
    stopped_by: str
    """`person` or `hook`, when it must."""
    ended: str
    """`stopped`, when it must; else empty."""
    refused: Refusals
    """What somebody refused since the prompt."""
    noted_epoch: int
    """Drive in which the model was last told which background processes had ended."""


class DecideState(HookWait, total=False):
    """One call on its way to `ready` or to an answer without execution. Reached by `Send`."""

    message: str
    index: int
    approval_mode: str
    attempt: int
    status: str
    """Where the call is in its life (`state/charts.py`, ToolCallChart)."""
    asks: int
    """How often a person was asked about this call; a request that went stale is asked again."""
    by_person: bool
    """A person wrote these arguments: deny still holds, ask does not come again."""
    by_hook: bool
    """A hook made these arguments: the model is told."""
    must_ask: bool
    """A rule or a hook wants a person to be asked."""
    hook_attempt: int
    """Attempt whose arguments the hooks have seen, or made; 0: none."""
    hook_reason: str
    """Why a hook wants a person to be asked; empty: none does."""
    helper: str
    """Set by `edit`: chain record of a helper model's answer that mends the call's strings."""
    helper_role: str
    edit_status: str
    """Set by `edit`: what became of a call whose old string isn't in its file; empty: it wasn't needed."""
    explanation: str
    error: dict[str, str]
    decided: Verdicts


class DecideOut(TypedDict, total=False):
    """What a decided call tells its batch: reducer channels only."""

    decided: Verdicts


class ExecuteState(HookWait, total=False):
    """One call that may run. Reached by `Send`."""

    message: str
    index: int
    attempt: int
    by_hook: bool
    kind: str
    """tool, question, agent or review."""
    approval_mode: str
    asks: int
    """How often a plan was shown; one that changed meanwhile is shown again."""
    status: str
    shortened: str
    """Chain record (detached) of what stands for an output that is long, or that a hook blocked; empty: the output."""
    hook_notes: str
    """Chain record (detached) of what hooks add to the result; empty: nothing."""
    hook_stop: str
    """Why a hook wants the run to end; empty: it goes on."""
    finished: Verdicts


class ExecuteOut(TypedDict, total=False):
    """What an executed call tells its batch: reducer channels only."""

    finished: Verdicts


class DecideSend(TypedDict, total=False):
    """Payload that starts a decision."""

    message: str
    index: int
    approval_mode: str


class ExecuteSend(TypedDict, total=False):
    """Payload that starts an execution."""

    message: str
    index: int
    attempt: int
    approval: str
    by_hook: bool
    kind: str
    approval_mode: str
