"""_results: a finished call, out of the journal."""

from interlock.state.calls import CallKey, ToolResult
from interlock.state.deps import Deps
from interlock.state.errors import RunError
from interlock.state.events import ToolResultEvent


def recorded(deps: Deps, key: CallKey) -> ToolResult:
    """The journal's result of an attempt that is over."""
    row = deps.journal.find(key, deps.journal.call(key))
    if row is None or row.result is None:
        raise RunError(f"Call {str(key)!r} is over but the journal holds no result of it.")
    return row.result


def result_event(deps: Deps, key: CallKey) -> ToolResultEvent:
    call, result = deps.journal.call(key), recorded(deps, key)
    duration = result.meta.get("duration_ms")
    return ToolResultEvent(
        tool_name=call.name,
        tool_id=call.id,
        status=result.status,
        output=result.content,
        error=result.error,
        duration_ms=duration if isinstance(duration, int) else 0,
    )
