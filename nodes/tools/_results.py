"""_results: a finished call, out of the journal."""

from interlock.nodes.summarize._rules import is_long, rule_of
from interlock.nodes.tools._verdicts import attempt_of, instead_of
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


def as_sent(transcript: Transcript, verdict: str, result: ToolResult) -> ToolResult:
    """The result as the model reads it: shortened, or with what hooks said of it."""
    record = instead_of(verdict)
    if not record:
        return result
    message = transcript.message(record)
    if message.status is None or message.status == result.status:
        return result.model_copy(update={"content": message.text})
    error = {"type": "blocked_by_hook", "message": message.text}
    return result.model_copy(update={"status": message.status, "content": message.text, "error": error})


def is_too_long(deps: Deps, call: CallView, result: ToolResult) -> bool:
    """A cancelled call's output stays: nobody is asked anything while the run stops."""
    rule = rule_of(deps.settings, call.name)
    return result.status != "cancelled" and is_long(deps.settings, rule, result.content)


def result_event(deps: Deps, key: CallKey, verdict: str) -> ToolResultEvent:
    """What people are told of a call: all of a long output, but a blocked one as the model has it."""
    call, raw = deps.journal.call(key), recorded(deps.journal, key)
    sent = as_sent(deps.transcript, verdict, raw)
    result = raw if sent.status == raw.status else sent
    duration, code = result.meta.get("duration_ms"), result.meta.get("exit_code")
    return ToolResultEvent(
        tool_name=call.name,
        tool_id=call.id,
        status=result.status,
        output=result.content,
        error=result.error,
        duration_ms=duration if isinstance(duration, int) else 0,
        diff=str(result.meta.get("diff") or ""),
        summary=deps.toolset.summary(call),
        exit=str(result.meta.get("signal") or (f"exit {code}" if code else "")),
    )
