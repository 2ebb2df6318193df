"""_split: where a conversation is cut, so that no call is separated from its answers."""

from collections.abc import Sequence
from typing import NamedTuple

from interlock.state.messages import Message


class Cut(NamedTuple):
    """What goes: the messages from the end of the opening up to `start`, but for `carried`."""

    start: int
    """Index of the first message that is kept."""
    carried: int = -1
    """Index of an earlier message that is kept too: the request that is still being worked on; -1: none."""


def opening_length(messages: Sequence[Message]) -> int:
    """Messages that stand before the conversation: system prompt, environment, memory files' rules."""
    for index, message in enumerate(messages):
        if message.role != "system" and message.origin != "context":
            return index
    return len(messages)


def find_cut(messages: Sequence[Message], preserve: float) -> Cut | None:
    """The first user message after `1 - preserve` of the characters; None when there is nothing to drop.

    Without one everything goes, if the last answer is whole. Else, in the middle of a long task, the cut comes before
    the first complete round of calls after that place, and the task's request is kept with what follows.
    """
    first = opening_length(messages)
    sizes = [len(m.model_dump_json(exclude_defaults=True)) for m in messages]
    target = sum(sizes[first:]) * (1 - preserve)
    before, waiting = 0, set[str]()
    request = last = -1
    in_task: Cut | None = None
    for index in range(first, len(messages)):
        message = messages[index]
        if not waiting and message.role == "user" and not _adds(messages, index):
            if before >= target:
                return _worth(Cut(index), first)
            last = index
            request = index if message.origin != "snapshot" else -1
        if not waiting and message.role == "assistant" and before >= target and in_task is None:
            in_task = Cut(index, request)
        waiting |= {call.id for call in message.tool_calls}
        waiting.discard(message.tool_call_id or "")
        before += sizes[index]
    end = messages[-1] if messages else None
    if end is not None and end.role == "assistant" and not end.tool_calls:
        return _worth(Cut(len(messages)), first)
    return _worth(in_task, first) or _worth(Cut(last), first)


def _adds(messages: Sequence[Message], index: int) -> bool:
    """What a hook added to a request stands right after it, and isn't one."""
    return messages[index].origin == "hook" and index > 0 and messages[index - 1].role == "user"


def dropped(messages: Sequence[Message], cut: Cut) -> list[Message]:
    first = opening_length(messages)
    return [m for i, m in enumerate(messages[: cut.start]) if i >= first and i != cut.carried]


def kept(messages: Sequence[Message], cut: Cut) -> list[Message]:
    """What stays word for word after the opening."""
    carried = [messages[cut.carried]] if cut.carried >= 0 else []
    return [*carried, *messages[cut.start :]]


def _worth(cut: Cut | None, first: int) -> Cut | None:
    """Only a cut that drops something."""
    if cut is None or cut.start - first - (cut.carried >= 0) <= 0:
        return None
    return cut
