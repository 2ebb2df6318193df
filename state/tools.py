"""tools: state, input and output of tool scheduling and execution."""

from typing import Annotated, Any

from pydantic import Field, JsonValue, model_validator
from typing_extensions import TypedDict

from interlock.state.calls import CallOutcome, OneCall, merge_by_key
from interlock.state.conversation import BatchEnd, LoopEnd
from interlock.state.hooks import HookWait
from interlock.state.plan import PlanMode
from interlock.state.run import HistoryMessage, Labelled, WorkflowInput, WorkflowOutput


class ToolsInput(WorkflowInput):
    """Input of `tools`."""

    calls: list[dict[str, Any]] = Field(
        default_factory=list[dict[str, Any]], description="the calls, each {id, name, args}"
    )
    text: str = Field("", description="instead of calls: a message that holds them as tags (protocol xml)")
    history: list[HistoryMessage] = Field(default_factory=list[HistoryMessage])

    @model_validator(mode="after")
    def _one_of_both(self) -> "ToolsInput":
        if bool(self.calls) == bool(self.text):
            raise ValueError("give either calls or text")
        return self


class ToolsOutput(WorkflowOutput):
    """Output of `tools`: one response for each call, in the calls' order."""

    responses: list[dict[str, Any]]
    stop: str | None = None


Outcomes = Annotated[dict[str, CallOutcome], merge_by_key]
"""Call index → what deciding it came to, or executing it. Read them by `outcomes_of`."""


class ToolsState(Labelled, PlanMode, BatchEnd, LoopEnd, total=False):
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
    reading: bool
    """No call of the group has an effect."""
    decided: Outcomes
    finished: Outcomes
    todos: str
    """Chain record (detached) of the newest list of steps; empty: none."""
    ended: str
    """`stopped`, when it must; else empty."""
    noted_epoch: int
    """Drive in which the model was last told which background processes had ended."""
    withheld: dict[str, str]
    """Index of each call that isn't to be run → why, by the task loop."""


class DecideState(HookWait, OneCall, total=False):
    """One call on its way to `ready` or to an answer without execution. Reached by `Send`."""

    approval_mode: str
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
    verdict: dict[str, JsonValue]
    """What policy said of these arguments (`Verdict`), where a person may yet be asked."""
    rules: str
    """Fingerprint of the rules by which it did."""
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
    decided: Outcomes


class DecideOut(TypedDict, total=False):
    """What a decided call tells its batch: reducer channels only."""

    decided: Outcomes


class ExecuteState(HookWait, OneCall, total=False):
    """One call that may run. Reached by `Send`."""

    by_hook: bool
    kind: str
    """tool, question, agent or review."""
    approval_mode: str
    asks: int
    """How often a plan was shown, or input asked for; a plan that changed meanwhile is shown again."""
    given: str
    """Chain record (detached) of the forms that were filled in for the call's server, a line each; empty: none."""
    input_problem: str
    """What is wrong with the last answer to a form; empty: nothing."""
    status: str
    shortened: str
    """Chain record (detached) of what stands for an output that is long, or that a hook blocked; empty: the output."""
    hook_notes: str
    """Chain record (detached) of what hooks add to the result; empty: nothing."""
    hook_stop: str
    """Why a hook wants the run to end; empty: it goes on."""
    finished: Outcomes


class ExecuteOut(TypedDict, total=False):
    """What an executed call tells its batch: reducer channels only."""

    finished: Outcomes


class DecideSend(OneCall, total=False):
    """Payload that starts a decision."""

    approval_mode: str


class ExecuteSend(OneCall, total=False):
    """Payload that starts an execution."""

    approval: str
    by_hook: bool
    kind: str
    approval_mode: str
