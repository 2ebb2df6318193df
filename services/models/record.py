"""record: `--record-responses`: every reply, as a script that plays it back."""

from pathlib import Path

from interlock.services.models.answer import OWN_ID, Answer
from interlock.services.models.request import Request
from interlock.services.models.script_file import Scripted, ScriptedCall, write_entry
from interlock.state.messages import Message


class ReplyRecorder:
    """Appends to one file. Whoever starts a new run starts a new file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, request: Request, message: Message, answer: Answer) -> None:
        """Write one reply; it is in the file when this returns."""
        calls = (
            ScriptedCall(
                name=call.name,
                args=call.args,
                id=None if OWN_ID.fullmatch(call.id) else call.id,
                signature=call.signature,
            )
            for call in message.tool_calls
        )
        entry = Scripted(
            role=request.role,
            agent=request.agent,
            ordinal=request.ordinal,
            text=message.text,
            thought=message.thought or "",
            tool_calls=tuple(calls),
            usage=answer.usage,
            signature=message.signature,
            finish_reason=answer.finish_reason,
            problem=answer.problem,
        )
        write_entry(self._path, entry)
