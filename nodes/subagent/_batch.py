"""_batch: the calls of the last batch that went well."""

from collections.abc import Iterator

from interlock.state.deps import Transcript
from interlock.state.messages import ToolCall


def succeeded(transcript: Transcript, head: str, reply: str, name: str) -> list[ToolCall]:
    """Calls of `name` in the reply whose answer, further down the chain, is a success; in their order."""
    good = set(_successes(transcript, head, reply))
    return [c for c in transcript.message(reply).tool_calls if c.name == name and c.id in good]


def _successes(transcript: Transcript, head: str, reply: str) -> Iterator[str]:
    count = len(transcript.message(reply).tool_calls)
    for record in transcript.ids(head, count):
        message = transcript.message(record)
        if message.role == "tool" and message.status == "success" and message.tool_call_id:
            yield message.tool_call_id
