"""_told: what the model reads of a call, when that isn't just the result."""

from interlock.nodes.tools._results import recorded
from interlock.prompts import load
from interlock.state.calls import CallKey
from interlock.state.deps import Deps
from interlock.state.messages import Message


def told(
    deps: Deps, key: CallKey, instead: str = "", *, by_hook: bool = False, notes: str = "", stop: str = ""
) -> str:
    """Chain record with the result, or what stands `instead` of it, and what is to be said besides; empty: the result.

    `instead` and `notes` are records. With `stop` the record before it says why the run must end.
    """
    extra = [load("run/args_changed_by_hook").text()] if by_hook else []
    extra += [deps.transcript.message(notes).text] if notes else []
    if not extra:
        return instead
    call = deps.journal.call(key)
    known = deps.transcript.message(instead) if instead else None
    text = known.text if known else recorded(deps.journal, key).content
    status = known.status if known else None
    message = Message(role="tool", name=call.name, status=status, content="\n\n".join([text, *extra]))
    before = [Message(role="user", origin="hook", content=stop)] if stop else []
    return deps.transcript.append("", [*before, message])
