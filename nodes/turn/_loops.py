"""_loops: one answer under the eyes of loop detection, levels 1 and 2."""

from collections.abc import Sequence

from interlock.nodes.loop_check._chants import Chants
from interlock.nodes.loop_check._cycles import call_key, cycle, remembered, told
from interlock.state.loop_check import LONGEST_CYCLE
from interlock.state.messages import Message
from interlock.state.models import Reply

_CALLS = 2 * LONGEST_CYCLE
"""Messages at the end of a history that hold the calls of the longest cycle, each with its answer."""


class LoopWatch:
    """Sees the text before it is shown, and the calls before they are run."""

    def __init__(self, history: Sequence[Message], keys: Sequence[str]) -> None:
        self.keys = list(keys)
        self._history = history
        self._chants = Chants()
        for text in _spoken(history):
            self._chants.feed(text)

    def text(self, piece: str) -> str | None:
        """What repeats, once it does."""
        found = self._chants.feed(piece)
        return f"the text “{found}” was repeated again and again" if found else None

    def found(self, reply: Reply) -> dict[str, str]:
        """`{kind, detail}`; empty: no loop. The reply's calls are remembered either way."""
        if reply.finish_reason == "abandoned":
            return {"kind": "content", "detail": reply.problem or ""}
        loop: dict[str, str] = {}
        names = [call.name for message in self._history[-_CALLS:] for call in message.tool_calls]
        for call in reply.message.tool_calls:
            names.append(call.name)
            self.keys = remembered(self.keys, call_key(call.name, call.args))
            if not loop and (length := cycle(self.keys)):
                loop = {"kind": "tool_call", "detail": told(names, length, call.args)}
        return loop


def _spoken(history: Sequence[Message]) -> list[str]:
    """What the model has said since a person or a tool spoke: an answer that it was told to go on with."""
    texts: list[str] = []
    for message in reversed(history):
        ours = message.role == "user" and message.origin in ("continue", "nudge")
        if message.role == "assistant" and not message.tool_calls:
            texts.append(message.text)
        elif not ours:
            break
    return texts[::-1]
