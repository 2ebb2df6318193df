"""run: base input and base state of all workflows."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, JsonValue, ValidationError
from typing_extensions import TypedDict

from interlock.state.calls import ApprovalMode
from interlock.state.errors import InputError
from interlock.state.messages import Origin
from interlock.state.text import did_you_mean

MAX_TURNS = 100
"""Turns per prompt (gemini-cli's MAX_TURNS)."""


Protocol = Literal["native", "xml", "json", "auto"]
"""How a model calls tools: the provider's native way, or by tags in its text."""


class Closed(BaseModel, extra="forbid", defer_build=True):
    """An unknown key is an error."""


class Limits(Closed):
    """What a run may use. Turns are model turns; -1 means no limit."""

    max_turns: int = Field(MAX_TURNS, ge=0, description="model turns per prompt")
    max_session_turns: int = Field(
        -1, ge=-1, description="model turns across all prompts of the run; -1: no limit"
    )
    max_tokens: int | None = Field(None, ge=1, description="input and output tokens over the whole run")
    max_budget_usd: float | None = Field(None, gt=0, description="cost over the whole run, in US dollars")
    timeout_s: float | None = Field(None, gt=0, description="running time in seconds, without time parked")


class WorkflowInput(Closed):
    """The fields that every workflow's input has."""

    workspace: str | None = Field(None, description="folder to work in; default: the current folder")
    model: str | None = Field(None, description="alias, Gemini id, provider:model or script:FILE")
    approval_mode: ApprovalMode | None = Field(None, description="default | auto_edit | plan | yolo")
    mode: str | None = Field(None, description="mode of work: architect, code, ask, … (interlock modes)")
    protocol: Protocol | None = Field(
        None, description="native | xml | json | auto: how the model calls tools"
    )
    limits: Limits = Field(default_factory=lambda: Limits.model_validate({}))


def to_input_error(workflow: str, kind: type[WorkflowInput], error: ValidationError) -> InputError:
    """The first error of an input, naming the field; a mistyped field comes before the one that it was meant to be."""
    first = min(error.errors(), key=lambda one: one["type"] != "extra_forbidden")
    place = ".".join(str(part) for part in first["loc"]) or "input"
    known = f" {kind.__name__} has: {', '.join(kind.model_fields)}."
    hint = did_you_mean(place, kind.model_fields) or known if first["type"] == "extra_forbidden" else ""
    what = ": " + first["msg"].removeprefix("Value error, ")
    what = " is missing" if first["type"] == "missing" else what
    of = f"Input field {place!r}" if first["loc"] else "Input"
    return InputError(f"{of}{what}.{hint} See: interlock schema {workflow}", place)


def keep_newest(old: str, new: str) -> str:  # noqa: ARG001 - a reducer has this shape
    """Reducer for concurrent writers: either value may win, so only the writing branch may rely on it."""
    return new


OF_PROCESS = "of the process"
"""Marks a channel whose value depends on the driving process or a clock: replays don't compare it."""
BY_PROCESS = frozenset({"noted_epoch", "retry", "route_ms", "time_left_s", "trial_timeout_s"})
"""Names of these channels. A LangGraph graph's own keys may have any name."""


class RunChannels(TypedDict, total=False):
    """Channels of every graph, passed down to parts and through sends."""

    agent: Annotated[str, keep_newest]
    """Record of the sub-agent the graph works for; empty: the root."""
    hooked: Annotated[str, keep_newest]
    """Events that have hooks (`Hooks.hooked_events`)."""
    chosen_mode: Annotated[str, keep_newest]
    """The approval mode that a person chose by its name; allowing all edits chooses none."""
    mode: Annotated[str, keep_newest]
    """Slug of the mode of work (`state/mode.py`); empty: none, so nothing is restricted."""
    protocol: Annotated[str, keep_newest]
    """`Protocol`; empty: native."""
    skill_denies: Annotated[str, keep_newest]
    """Tools that skills of this prompt forbid, with commas; empty: none."""
    skill_allows: Annotated[str, keep_newest]
    """What `allowed-tools` of the user's own skills of this prompt allow, an entry a line; empty: nothing."""


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

    label: Annotated[str, keep_newest]
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


class WorkflowOutput(Closed, ser_json_bytes="base64", ser_json_inf_nan="constants"):
    """Base of every workflow's output; JSON has no word for bytes, which become base64."""


OF_CHAIN = "of the chain"
"""Marks a field of an output that `read_history` made: it is clean JSON already, and may be long."""
ChainHistory = Annotated[list[dict[str, Any]], OF_CHAIN]


class ErrorInfo(Closed):
    """Why a run did not end well."""

    type: str
    message: str
