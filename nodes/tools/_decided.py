"""_decided: note who decided what of a call; the row is committed with the node's own writes."""

from langgraph.runtime import Runtime

from interlock.state.calls import Answer, CallKey
from interlock.state.decided import Decided, DecidedBy
from interlock.state.deps import Deps
from interlock.state.errors import RunError


def note(runtime: Runtime[Deps], key: CallKey, what: Decided) -> None:
    if runtime.execution_info is None:
        raise RunError("A call was decided outside a graph.")
    runtime.context.steps.decided(runtime.execution_info.task_id, key, what)


def note_change(
    runtime: Runtime[Deps], key: CallKey, by: DecidedBy, becomes: int, who: str, reason: str = ""
) -> None:
    """Somebody gave the call other arguments: those of the attempt `becomes`."""
    what = Decided(by=by, decision="changed", who=who, reason=reason, becomes=becomes)
    note(runtime, key, what)


def note_person(runtime: Runtime[Deps], key: CallKey, request: str, answer: Answer, becomes: int = 0) -> None:
    """What a person answered to the request with this key."""
    said = answer.text or answer.feedback or ""
    what = Decided(
        by="person",
        decision=answer.choice,
        who=answer.by,
        request=request,
        said=said,
        said_at=answer.at,
        becomes=becomes,
    )
    note(runtime, key, what)
