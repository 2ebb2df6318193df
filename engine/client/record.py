"""record: a run's conversation from its record, as the events that a renderer saw, and how far somebody has read it."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, cast

from interlock.engine.read.calls import read_results_by_call_id
from interlock.engine.store import queries
from interlock.engine.store.chain import list_dropped_messages, read_first_prompt, read_messages_up_to
from interlock.engine.store.checkpoints import read_state_at_step
from interlock.engine.store.workspaces import list_undo_notes
from interlock.services.toolset import summarize_call
from interlock.state.calls import CallView
from interlock.state.context import UNDONE
from interlock.state.errors import UserError
from interlock.state.events import Event, MessageEvent, Thought, ToolResultEvent, ToolUse, Undone
from interlock.state.messages import Message, ToolCall
from interlock.tools.table import TOOLS

MOST_MESSAGES = 400
"""Messages shown of a long conversation: the newest."""


def read_conversation_events(home: Path, run: str, step: int | None = None) -> list[Event]:
    """The conversation so far, or up to a root step, with what was compressed away. Reads the store alone."""
    try:
        state = read_state_at_step(home, run, step)
    except UserError:  # killed before its first checkpoint
        if step is not None:
            raise
        prompt = read_first_prompt(home, run)
        return [MessageEvent(role="user", content=prompt)] if prompt else []
    messages = _read_uncompressed_conversation(home, run, str(state.get("head") or ""))
    if waits := str(state.get("prompt") or ""):
        messages += read_messages_up_to(home, run, waits)[-1:]
    made = read_results_by_call_id(home, run)
    return [event for message in messages for event in _message_events(message, made)]


def read_undos_unseen_by_model(home: Path, run: str) -> list[Event]:
    """What a person took back that the conversation doesn't tell yet: it will, after the next prompt."""
    return [Undone(content=one.text) for one in list_undo_notes(home, run) if not one.told]


class RecordExtent(NamedTuple):
    """How much of a run's record there was at a root step."""

    events: int
    """The first of the record, results left out."""
    open: tuple[str, ...]
    """Ids of the calls among them that had no result yet."""


def read_record_extent_at_step(home: Path, run: str, step: int) -> RecordExtent:
    """The part of `events` that a root step had. Raises `UserError` naming the existing steps."""
    found = read_conversation_events(home, run, step)
    messages = _read_uncompressed_conversation(
        home, run, str(read_state_at_step(home, run, step).get("head") or "")
    )
    answered = {message.tool_call_id for message in messages if message.role == "tool"}
    made = [call.id for message in messages for call in message.tool_calls]
    return RecordExtent(
        sum(not isinstance(event, ToolResultEvent) for event in found),
        tuple(name for name in made if name not in answered),
    )


def read_record_version(home: Path, run: str) -> tuple[object, ...]:
    """Changes whenever `events` may have grown, and costs little to read."""
    return tuple(value for row in queries.select_extent(home, run) for value in row)


@dataclass
class Cursor:
    """How far a reader has come. The record grows at its end, but for results, which come between calls in flight."""

    taken: int = 0
    """Events read, results left out."""
    open: set[int] = field(default_factory=set[int])
    """Calls among them whose result hasn't been read."""

    @classmethod
    def parse(cls, text: str) -> "Cursor":
        """From what `str` made, empty for the beginning. Raises `UserError`."""
        taken, _, calls = text.partition(":")
        try:
            return cls(int(taken or 0), {int(number) for number in calls.split(".") if number})
        except ValueError:
            raise UserError(f"{text!r} isn't a position in a run's record. Start without one.") from None

    def __str__(self) -> str:
        return f"{self.taken}:{'.'.join(map(str, sorted(self.open)))}"

    def move_past(self, events: Iterable[Event]) -> "Cursor":
        """Move to the end of a record."""
        for _ in self.read_new_events(events):
            pass
        return self

    def read_new_events(self, events: Iterable[Event]) -> Iterator[Event]:
        """The events of a record that come after this place, which moves past each."""
        number = 0
        for event in events:
            if isinstance(event, ToolResultEvent):
                if number in self.open:
                    self.open.remove(number)
                    yield event
                continue
            number += 1
            if number > self.taken:
                self.taken = number
                if isinstance(event, ToolUse):
                    self.open.add(number)
                yield event


def newest_events(events: list[Event], limit: int = MOST_MESSAGES) -> tuple[list[Event], int]:
    """The last `limit` events at most, starting at a prompt if possible, and how many are left out."""
    if len(events) <= limit:
        return events, 0
    starts = [n for n, e in enumerate(events) if isinstance(e, MessageEvent) and e.role == "user"]
    first = next((n for n in starts if n >= len(events) - limit), len(events) - limit)
    return events[first:], first


def _read_uncompressed_conversation(home: Path, run: str, head: str) -> list[Message]:
    """The messages as first seen: what compression and masking replaced is restored."""
    messages = read_messages_up_to(home, run, head)
    gone = [message for past in list_dropped_messages(home, run, head) for message in past]
    answered = Counter(message.tool_call_id for message in gone if message.role == "tool")
    return gone + [m for m in messages if m.role != "tool" or not answered[m.tool_call_id]]


def _message_events(message: Message, results_by_call: Mapping[str, Mapping[str, Any]]) -> Iterator[Event]:
    if message.role == "user" and message.origin in (None, "person"):
        yield MessageEvent(role="user", content=message.text)
    elif text := message.part(UNDONE):
        yield Undone(content=text)
    elif message.role == "assistant":
        if message.thought:
            yield Thought(content=message.thought)
        if message.text:
            yield MessageEvent(role="assistant", content=message.text)
        for call in message.tool_calls:
            yield from _call_events(call, results_by_call.get(call.id))
    # A tool's result comes with its call from the journal, which has more of it.


def _call_events(call: ToolCall, result: Mapping[str, Any] | None) -> Iterator[Event]:
    summary = summarize_call(TOOLS.get(call.name), CallView(id=call.id, name=call.name, args=call.args))
    yield ToolUse(tool_name=call.name, tool_id=call.id, parameters=call.args, summary=summary)
    if result is None:
        return
    meta: Mapping[str, Any] = result.get("meta") or {}
    duration = meta.get("duration_ms")
    yield ToolResultEvent(
        tool_name=call.name,
        tool_id=call.id,
        status=result["status"],
        output=_content_text(result.get("content")),
        error=result.get("error"),
        duration_ms=duration if isinstance(duration, int) else 0,
        diff=str(meta.get("diff") or ""),
        summary=summary,
        exit=str(meta.get("signal") or (f"exit {meta['exit_code']}" if meta.get("exit_code") else "")),
    )


def _content_text(content: object) -> str:
    """The text of a message's content, which may come in parts."""
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in cast("list[dict[str, Any]]", content))
    return str(content or "")
