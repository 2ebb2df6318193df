"""route: state, input and output of model selection."""

from typing import Annotated, Literal

from pydantic import BaseModel, Field, JsonValue
from typing_extensions import TypedDict

from interlock.state.chart_channels import ApprovalModeState
from interlock.state.run import OF_PROCESS, HistoryMessage, Labelled, WorkflowInput, WorkflowOutput

AUTO = "auto"
"""The name that requests routing."""
EXCLUDED = "excluded"
"""How long a model is unavailable that the input of `route` names as such."""
ROUTE_TIMEOUT_S = 20.0
"""Timeout in seconds for a helper's choice; on expiry the next strategy decides."""

Strategy = Literal["fallback", "override", "approval_mode", "classifier", "numerical", "default"]


class RouteInput(WorkflowInput):
    request: str | list[dict[str, JsonValue]] = Field(description="the user's message, text or parts ★")
    history: list[HistoryMessage] = Field(default_factory=list[HistoryMessage])
    requested_model: str = Field(AUTO, description="auto, an alias or a model")
    unavailable: list[str] = Field(default_factory=list[str], description="aliases or models not to choose")
    approved_plan: bool = Field(False, description="a plan was approved and is being carried out")


class RouteOutput(WorkflowOutput):
    model: str
    strategy: Strategy
    reasoning: str
    latency_ms: int


class Routing(TypedDict, total=False):
    """State shared with the requesting turn."""

    approval_mode: ApprovalModeState
    approved_plan: bool
    failed_model: str
    """The model that just became unavailable and needs a fallback; empty: none."""
    chosen_model: str
    """Empty: undecided."""
    strategy: str
    route_reason: str
    route_ms: Annotated[int, OF_PROCESS]
    """Milliseconds spent in strategies, helper calls included."""


class RouteState(Labelled, Routing, total=False):
    """State of model selection besides the chain."""

    head: str
    """Its last message is the request."""
    model: str
    """As requested: `auto`, alias or id."""
    unavailable: dict[str, str]
    """Model → how long it is unavailable: `run` or `prompt`; or `EXCLUDED`."""


class ModelChoice(BaseModel, defer_build=True):
    """What the classifier answers."""

    reasoning: str
    model_choice: Literal["flash", "pro"]


class Complexity(BaseModel, defer_build=True):
    """What the numerical classifier answers."""

    complexity_reasoning: str
    complexity_score: int = Field(ge=1, le=100)
