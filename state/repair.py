"""repair: input, output and state of the `repair` pipeline, and the places that may hold a fault."""

from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypedDict

from interlock.state.conversation import BatchEnd, LoopEnd
from interlock.state.hooks import HookWait
from interlock.state.messages import Frozen
from interlock.state.plan import PlanMode
from interlock.state.run import OF_PROCESS, ErrorInfo, WorkflowInput, WorkflowOutput

TASK = "The tests fail. Find the bug in the code and fix it. Don't change the tests."
ATTEMPTS = 16
"""Default for the number of requests for a correction."""
CONFIRMING_RUNS = 3
"""How often the check must succeed with a correction, the run that found it included."""

NOT_LOCATED = "not_located"
"""Type of the error that no code was found which may hold the fault."""

RepairStatus = Literal["done", "not_repaired", "cancelled", "failed"]


class RepairInput(WorkflowInput):
    task: str = Field(TASK, min_length=1, description="what is wrong, in words ★")
    attempts: int = Field(ATTEMPTS, ge=1, le=100, description="maximum number of corrections to try")
    check_timeout_s: float | None = Field(
        None, gt=0, description="seconds after which one run of the check counts as endless; default: 900"
    )


class RepairOutput(WorkflowOutput):
    """Output of `repair`."""

    status: RepairStatus
    response: str
    """What was done or tried, for people."""
    check: str
    """The command that must succeed; empty: none was found."""
    attempts: int
    """Corrections that the model was asked for."""
    failing: int
    """Tests that fail with what the workspace holds now, as far as the runner names them; 0: the check passes."""
    changed: list[str]
    """Files of the workspace that were changed."""
    proposal: str = ""
    """The best diff that wasn't applied; empty: none passes more tests than before."""
    error: ErrorInfo | None = None


class Place(Frozen):
    """A function, or a file as a whole, that may hold the fault. Lines count from 1."""

    path: str
    """Relative to the workspace."""
    name: str = ""
    """Of the function; empty: the whole file."""
    start_line: int
    end_line: int
    reason: str


class Suspects(Frozen):
    """Where the fault may be, likeliest first, and what the model is shown of the tests."""

    places: tuple[Place, ...] = ()
    files: dict[str, str] = Field(default_factory=dict[str, str])
    """Path → text of the places' files, with line feeds only."""
    tests: dict[str, str] = Field(default_factory=dict[str, str])
    """Path → the part of a failing test file that concerns the failure."""


class Attempt(Frozen):
    """One correction that the model was asked for, and what came of it."""

    place: int
    """Index in `Suspects.places`."""
    temperature: float
    outcome: str
    """For people and for the model's next request."""
    diff: str = ""
    """What it changes in the workspace's files; empty: the answer was unusable."""


class RepairRequest(TypedDict, total=False):
    """State that a repair shares with the workflow that it is a part of."""

    task: str
    """Record of what is wrong, in a person's words."""
    max_attempts: int
    check_timeout_s: float
    """0: the default."""
    repair_status: str
    told: str
    """Record of what was done or tried, for people; empty: the check passes at once."""


class RepairState(HookWait, RepairRequest, PlanMode, BatchEnd, LoopEnd, total=False):
    """State of a repair besides the chain: texts are detached records, named by their ids."""

    command: str
    """The check; empty: none was found."""
    trial_timeout_s: Annotated[float, OF_PROCESS]
    """Seconds that the check may take with a correction, by how long it took without."""
    head: str
    """Conversation with the call that applies the correction, and its result; empty: none was applied."""
    message: str
    count: int
    checked: str
    """Record of the `CheckEnd` of the best known state; at first, of the workspace."""
    suspects: str
    """Record of `Suspects`; empty: not looked for yet."""
    best: str
    """Record of path → text of the files that pass more than the workspace; empty: none."""
    attempt_no: int
    since_best: int
    """Attempts since the best known state was found: which place and temperature come next. -1: found just now."""
    outcome: str
    """What came of the current attempt; empty: not known yet."""
    answer: str
    """Record of the model's last answer; empty: none that can be used."""
    trial: str
    """Record of path → text under trial; empty: the workspace as it is."""
    tried: str
    """Record of the list of `Attempt`."""
    confirmed: bool
    """The check has succeeded as often as it must."""
    error: dict[str, str]
