"""loop_check: state, input and output of loop detection, and its constants (gemini-cli's)."""

from typing import Annotated, Literal

from pydantic import BaseModel, Field, JsonValue
from typing_extensions import TypedDict

from interlock.state.run import Closed, HistoryMessage, Labelled, WorkflowInput, WorkflowOutput

REPEATS, LONGEST_CYCLE = 5, 5
"""Level 1: a cycle of 1 to 5 calls, made 5 times in a row."""
CHUNK, OCCURRENCES, MEAN_DISTANCE, DISTINCT = 50, 10, 250, 5
"""Level 2: 50 characters that occur 10 times, at most 250 apart on average, with at most 5 distinct texts between."""
KEPT = 5_000
"""Maximum characters that level 2 looks back."""
FIRST_CHECK, INTERVAL, CONFIDENCE, ENTRIES = 30, 10, 0.9, 20
"""Level 3: a model reads the last 20 entries, from turn 30 of a prompt, at first every 10 turns; loop from 0.9 on."""
LOOP_TIMEOUT_S = 60.0
"""Timeout in seconds for a judging model; on expiry, no loop."""

Kind = Literal["tool_call", "content", "model", "noise", "length"]
RAN_ON = ("noise", "length")
"""Kinds of a reply that ran on instead of repeating anything."""


class PromptEvent(Closed):
    type: Literal["prompt"]
    prompt_id: str
    text: str = ""


class TurnEvent(Closed):
    type: Literal["turn"]


class ToolCallEvent(Closed):
    type: Literal["tool_call"]
    name: str
    args: dict[str, JsonValue] = Field(default_factory=dict[str, JsonValue])


class ContentEvent(Closed):
    type: Literal["content"]
    text: str


class ModelVerdictEvent(Closed):
    """A model's judgement. Counts only while a check is due."""

    type: Literal["model_verdict"]
    confidence: float | None = Field(ge=0, le=1)
    """null: the model failed."""
    double_check_confidence: float | None = Field(None, ge=0, le=1)
    """Of the stronger model; null: it failed; absent: it is unavailable."""


LoopEvent = Annotated[
    PromptEvent | TurnEvent | ToolCallEvent | ContentEvent | ModelVerdictEvent, Field(discriminator="type")
]


class LoopCheckInput(WorkflowInput):
    events: list[LoopEvent] = Field(description="what happened, in order")
    history: list[HistoryMessage] | None = Field(
        None, description="conversation; with it, a model checks for loops when due"
    )


class LoopCheckOutput(WorkflowOutput):
    detected: bool
    kind: Kind | None
    detail: str
    at_event: int | None
    count: int
    interval: int
    next_check_turn: int
    verdicts: list[bool]


Judgement = dict[str, float | None]
"""`confidence`, and `double` for the second model. null: that model failed; no `double`: it is unavailable."""


class LoopWatch(TypedDict, total=False):
    """What a run tracks about its repetitions."""

    loop_keys: list[str]
    """Keys of the prompt's last 25 calls."""
    loop_count: int
    """Loops found in this prompt."""
    loop_interval: int
    """Turns between model checks."""
    loop_next: int
    """Turn of the prompt at which the model checks next."""
    loop_found: dict[str, str]
    """`{kind, detail}` of the loop that ended the last turn; empty: none."""


class LoopCheckState(Labelled, LoopWatch, total=False):
    """State of a check besides the chain."""

    head: str
    events: str
    """Chain record (detached) with the events; empty: called from a run's turn."""
    asks: bool
    """Events only: whether a model is asked, because there is a history."""
    off: bool
    """Events only: loop detection is off."""
    limit: int
    """Events only: `model.maxReplyTokens`."""
    turn_no: int
    unavailable: dict[str, str]
    judgements: list[Judgement]
    """Judgements for this check's due turns, in order; cleared once applied."""


class Analysis(BaseModel, defer_build=True):
    """What a judging model answers."""

    unproductive_state_analysis: str
    unproductive_state_confidence: float = Field(ge=0, le=1)
