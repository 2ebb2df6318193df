"""_subject: what must be known of a call before it is decided: its tool, and the calls before it in its batch."""

from collections.abc import Sequence

from interlock.state.calls import CallKey, CallView
from interlock.state.deps import Deps
from interlock.state.errors import RunError
from interlock.state.toolset import ToolInfo


def info_of(deps: Deps, call: CallView) -> ToolInfo:
    info = deps.toolset.info(call.name)
    if info is None:
        raise RunError(
            f"Tool {call.name!r} was there when the call was resolved, and is gone. Resume when it is back."
        )
    return info


def earlier_calls(deps: Deps, message: str, index: int) -> list[CallView]:
    """The calls before this one in its batch: an edit is previewed on their result."""
    return [deps.journal.call(CallKey(message=message, index=i)) for i in range(index)]


def is_foreseen(deps: Deps, earlier: Sequence[CallView]) -> bool:
    """A command may change any file before a later call of its batch has its turn."""
    infos = (deps.toolset.info(call.name) for call in earlier)
    return not any(info is not None and info.effect == "other" for info in infos)
