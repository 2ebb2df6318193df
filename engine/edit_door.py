"""edit_door: the doors of `edit`: its input is a call of `replace`, its output is read off the chain."""

from collections.abc import Mapping
from typing import Any, Protocol, cast

from interlock.state.calls import CallKey
from interlock.state.deps import Transcript
from interlock.state.edit import EditError, EditInput, EditOutput
from interlock.state.journal import Journal
from interlock.state.messages import Message, ToolCall
from interlock.state.text import clean_json


class _Outside(Protocol):
    """What these doors need of `engine/doors.Outside`."""

    @property
    def transcript(self) -> Transcript: ...
    @property
    def approval_mode(self) -> str: ...
    @property
    def journal(self) -> Journal: ...


_STRINGS = ("instruction", "old_string", "new_string", "expected_replacements")


def enter_edit(given: EditInput, out: _Outside) -> dict[str, Any]:
    """Content and strings are a record of the chain; the state holds its id."""
    source = "content" if given.file_path is None else "file"
    subject = {"content": given.content} if given.file_path is None else {"file_path": given.file_path}
    args = cast(dict[str, Any], clean_json({**subject, **{name: getattr(given, name) for name in _STRINGS}}))
    call = ToolCall(id="0.0", name="replace", args=args)
    return {
        "message": out.transcript.append("", [Message(role="assistant", tool_calls=(call,))]),
        "index": 0,
        "attempt": 1,
        "source": source,
        "known_hash": given.known_hash or "",
        "last_edit_at": given.last_edit_at or 0.0,
        "approval_mode": out.approval_mode,
    }


def leave_edit(values: Mapping[str, Any], out: _Outside) -> EditOutput:
    args = out.transcript.message(values["message"]).tool_calls[0].args
    status = values["edit_status"]
    made: dict[str, Any] = {"old_string": args["old_string"], "new_string": args["new_string"]}
    if status == "created":
        made |= {"new_content": args["new_string"], "diff": _diff(values, out)}
    elif status == "applied":
        made = dict(out.transcript.message(values["result"]).tool_calls[0].args)
    error = values.get("error")
    return EditOutput(
        status=status,
        strategy=values.get("strategy") if status == "applied" else None,
        occurrences=values.get("occurrences", 0) if status == "applied" else 0,
        explanation=values.get("explanation") or None,
        error=EditError(**error) if error else None,
        **made,
    )


def _diff(values: Mapping[str, Any], out: _Outside) -> str:
    key = CallKey(message=values["message"], index=values["index"], attempt=values["attempt"])
    row = out.journal.find(key, out.journal.call(key))
    return row.planned.diff if row and row.planned else ""
