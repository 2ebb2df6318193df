"""placed: what the state of a user's workflow is composed of (`interlock.workflow`)."""

from typing import Annotated

from interlock.state.calls import merge_by_key
from interlock.state.conversation import BatchEnd
from interlock.state.run import Labelled


class State(Labelled, total=False):
    """Base of a workflow's state: `class MyState(State, total=False)`, with keys of JSON-like values."""

    passes: Annotated[dict[str, int], merge_by_key]
    """How often each `loop` was passed."""


class ToolState(BatchEnd, Labelled, total=False):
    """What a workflow's state has besides where it places `tools`. A run begins with `approval_mode`."""

    head: str
    """The conversation so far, at its end the calls that are to run, then their answers; absent or empty: none."""
    approval_mode: str
    message: str
    """Record of the last calls."""
    count: int
    """How many they are."""


class AgentState(Labelled, total=False):
    """What a workflow's state has besides where it places an `agent`. A run begins with all of it but `head`."""

    head: str
    """The conversation so far, as a record of the chain; absent or empty: none. The next agent goes on with it."""
    model: str
    approval_mode: str
    max_turns: int
    """Model turns of one task."""
    max_session_turns: int
    """-1: no limit."""
