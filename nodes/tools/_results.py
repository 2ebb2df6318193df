"""_results: a finished call, out of the journal."""

from interlock.nodes.tools._verdicts import attempt_of, shortened_of
from interlock.state.calls import CallKey, CallView, ToolResult
from interlock.state.deps import Deps, Transcript
from interlock.state.errors import RunError
from interlock.state.events import ToolResultEvent
from interlock.state.journal import Journal


def recorded(journal: Journal, key: CallKey) -> ToolResult:
    """The journal's result of an attempt that is over."""
    row = journal.find(key, journal.call(key))
    if row is None or row.result is None:
        raise RunError(f"Call {str(key)!r} is over but the journal holds no result of it.")
    return row.result


def recorded_of(journal: Journal, message: str, index: int, verdict: str) -> tuple[CallView, ToolResult]:
    """The call and the result that a batch's verdict stands for."""
    key = CallKey(message=message, index=index, attempt=attempt_of(verdict))
    return journal.call(key), recorded(journal, key)


def sent(transcript: Transcript, verdict: str, result: ToolResult) -> str:
    """What the model reads of a result."""
    record = shortened_of(verdict)
    return transcript.message(record).text if record else result.content


def result_event(deps: Deps, key: CallKey) -> ToolResultEvent:
    call, result = deps.journal.call(key), recorded(deps.journal, key)
    duration = result.meta.get("duration_ms")
    return ToolResultEvent(
        tool_name=call.name,
        tool_id=call.id,
        status=result.status,
        output=result.content,
        error=result.error,
        duration_ms=duration if isinstance(duration, int) else 0,
        diff=str(result.meta.get("diff") or ""),
    )
