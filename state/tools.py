"""tools: state, input and output of tool scheduling and execution."""

from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue, model_validator
from typing_extensions import TypedDict

from interlock.state.calls import CallOutcome, OneCall, merge_by_key
from interlock.state.chart_channels import ApprovalModeState, CallState
from interlock.state.conversation import BatchEnd, LoopEnd
from interlock.state.hooks import HookWait
from interlock.state.plan import PlanMode
from interlock.state.run import OF_PROCESS, HistoryMessage, Labelled, WorkflowInput, WorkflowOutput

CallKind = Literal["tool", "question", "agent", "review"]


class ToolsInput(WorkflowInput):
    calls: list[dict[str, Any]] = Field(
        default_factory=list[dict[str, Any]], description="the calls, each {id, name, args}"
    )
    text: str = Field("", description="instead of calls: a message with calls as tags (protocol xml)")
    history: list[HistoryMessage] = Field(default_factory=list[HistoryMessage])

    @model_validator(mode="after")
    def _require_calls_or_text(self) -> "ToolsInput":
        if bool(self.calls) == bool(self.text):
            raise ValueError("give either calls or text")
        return self


class ToolsOutput(WorkflowOutput):
    """Output of `tools`: one response for each call, in the calls' order."""

    responses: list[dict[str, Any]]
    stop: str | None = None


Outcomes = Annotated[dict[str, CallOutcome], merge_by_key]
"""Call index → outcome of deciding or executing it. Read with `outcomes_of`."""


class ToolsState(Labelled, PlanMode, BatchEnd, LoopEnd, total=False):
    """State of a batch besides the chain and the journal."""

    head: str
    """On entry, the assistant record with the calls; on exit, the last answer."""
    message: str
    """The assistant record that contains the calls."""
    count: int
    """Number of calls in the batch."""
    group: list[int]
    """Indices of the calls running now, in parallel."""
    kinds: dict[str, CallKind]
    """Index of each call in the group → how it is executed."""
    reading: bool
    """No call in the group has an effect."""
    decided: Outcomes
    finished: Outcomes
    todos: str
    """Chain record (detached) of the newest todo list; empty: none."""
    ended: str
    """`stopped` if the run must end; else empty."""
    noted_epoch: Annotated[int, OF_PROCESS]
    """Drive in which the model last heard which background processes had ended."""
    withheld: dict[str, str]
    """Index of each call the task loop withholds → why."""


class DecideState(HookWait, OneCall, total=False):
    """One call on its way to `ready` or to an answer without execution. Started by `Send`."""

    approval_mode: ApprovalModeState
    status: CallState
    """The call's current state (`state/charts.py`, ToolCallChart)."""
    asks: int
    """How often a person was asked about this call; stale requests are asked again."""
    by_person: bool
    """A person wrote these arguments: deny still applies, ask doesn't."""
    by_hook: bool
    """A hook wrote these arguments: the model is told."""
    must_ask: bool
    """A rule or a hook requires asking a person."""
    verdict: dict[str, JsonValue]
    """The policy's `Verdict` on these arguments, if a person may still be asked."""
    rules: str
    """Fingerprint of the rules behind that verdict."""
    hook_attempt: int
    """Attempt whose arguments the hooks have seen or written; 0: none."""
    hook_reason: str
    """Why a hook wants a person asked; empty: none does."""
    helper: str
    """Set by `edit`: chain record of the helper's answer that fixes the call's strings."""
    helper_role: str
    edit_status: str
    """Set by `edit`: outcome for a call whose old string isn't in its file; empty: no correction was needed."""
    explanation: str
    error: dict[str, str]
    decided: Outcomes


class DecideOut(TypedDict, total=False):
    """What a decided call returns to its batch: reducer channels only."""

    decided: Outcomes


class ExecuteState(HookWait, OneCall, total=False):
    """One call that may run. Started by `Send`."""

    by_hook: bool
    by_person: bool
    """A person wrote the arguments, or wants the call made again: the rules aren't asked once more."""
    kind: CallKind
    approval_mode: ApprovalModeState
    asks: int
    """How often a plan was shown or input requested; a plan that changed meanwhile is shown again."""
    given: str
    """Chain record (detached) of the forms filled in for the call's server, one per line; empty: none."""
    cause: str
    """Why the outcome of the call is unknown, as a sentence; empty: the run itself was killed or stopped."""
    input_problem: str
    """What is wrong with the last answer to a form; empty: nothing."""
    status: CallState
    shortened: str
    """Chain record (detached) of what replaces a long output, or one a hook blocked; empty: the output itself."""
    hook_notes: str
    """Chain record (detached) of what hooks add to the result; empty: nothing."""
    hook_stop: str
    """Why a hook wants the run to end; empty: it continues."""
    finished: Outcomes


class ExecuteOut(TypedDict, total=False):
    """What an executed call returns to its batch: reducer channels only."""

    finished: Outcomes


class DecideSend(OneCall, total=False):
    """Payload that starts a decision."""

    approval_mode: ApprovalModeState


class ExecuteSend(OneCall, total=False):
    """Payload that starts an execution."""

    approval: str
    by_hook: bool
    by_person: bool
    kind: CallKind
    approval_mode: ApprovalModeState
