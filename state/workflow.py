"""workflow: what a pipeline's `enter` and `leave` use, and base states for user workflows.

Outside a run a history is a list; inside, it is the head of a chain.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import JsonValue, ValidationError

from interlock.state.calls import merge_by_key
from interlock.state.chart_channels import ApprovalModeState
from interlock.state.conversation import BatchEnd
from interlock.state.deps import Transcript
from interlock.state.errors import InputError
from interlock.state.journal import Journal
from interlock.state.messages import Message, Usage
from interlock.state.run import ErrorInfo, HistoryMessage, Labelled, Limits
from interlock.state.text import clean_json, first_validation_error


@dataclass(frozen=True)
class WorkflowContext:
    """What `enter` and `leave` use besides input and state."""

    transcript: Transcript
    journal: Journal
    model: str
    approval_mode: ApprovalModeState
    limits: Limits
    stats: Callable[[], dict[str, Any]]
    usage: Callable[[str], Usage]
    """Chain record of a reply → its token usage."""
    agents: Sequence[str] = ()
    """Names of the available agents."""
    attached: Sequence[Message] = ()
    """Files the user attached to the prompt."""
    compress: bool = False
    """Compression was requested instead of a prompt."""

    def record_prompt(self, text: str) -> str:
        """Chain record (detached) of a person's prompt, preceded by its attachments."""
        prompt = Message(role="user", origin="person", content=str(clean_json(text)))
        return self.transcript.append("", [*self.attached, prompt])

    def record_ide_input(self, ide: Mapping[str, JsonValue] | None) -> str:
        """Chain record (detached) of an input's `ide`; empty: none."""
        text = json.dumps(clean_json(ide))
        return self.transcript.append("", [Message(role="user", content=text)]) if ide else ""


def parse_input_message(field: str, item: Mapping[str, Any]) -> Message:
    """Convert an input's message to a record. Raises `InputError` naming the field."""
    try:
        return Message.model_validate(clean_json(dict(item)))
    except ValidationError as error:
        place, what = first_validation_error(error, field)
        raise InputError(f"Input field {place!r}: {what}.", place) from error


def start_chain_from_history(transcript: Transcript, history: list[HistoryMessage]) -> str:
    """Head of a new chain with the history; `""` if empty."""
    messages = [
        parse_input_message(f"history.{i}", item.model_dump(exclude_defaults=True))
        for i, item in enumerate(history)
    ]
    return transcript.append("", messages) if messages else ""


def read_history(transcript: Transcript, head: str) -> list[dict[str, Any]]:
    """The conversation as dicts, without what the run itself put before it."""
    messages = transcript.read(head) if head else []
    return [
        m.model_dump(mode="json", exclude_defaults=True)
        for m in messages
        if m.role != "system" and m.origin != "context"
    ]


def error_from_state(values: Mapping[str, Any]) -> ErrorInfo | None:
    """The error in a final state, if any."""
    error = values.get("error")
    return ErrorInfo(**error) if error else None


class State(Labelled, total=False):
    """Base of a workflow's state: `class MyState(State, total=False)`, with keys of JSON-like values."""

    passes: Annotated[dict[str, int], merge_by_key]
    """Iterations of each `loop` so far."""


class ToolState(BatchEnd, Labelled, total=False):
    """Extra state for a workflow that places `tools`. A run starts with `approval_mode` set."""

    head: str
    """The conversation, ending with the calls to run, and later with their answers; absent or empty: none."""
    approval_mode: ApprovalModeState
    message: str
    """Record of the last calls."""
    count: int
    """Number of calls."""


class AgentState(Labelled, total=False):
    """Extra state for a workflow that places an `agent`. A run starts with all of it set but `head`."""

    head: str
    """The conversation, as a chain record; absent or empty: none. The next agent continues it."""
    model: str
    approval_mode: ApprovalModeState
    max_turns: int
    """Model turns per task."""
    max_session_turns: int
    """-1: no limit."""
