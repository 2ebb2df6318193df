"""next_group: choose the calls that run now."""

from langgraph.runtime import Runtime
from typing_extensions import TypedDict

from interlock.nodes.tools._verdicts import attempt_of, is_cancel, is_ready, verdict
from interlock.prompts import load
from interlock.state.calls import CallKey, cancelled
from interlock.state.deps import Deps
from interlock.state.errors import RunError
from interlock.state.tools import Verdicts
from interlock.state.toolset import ToolInfo


class NextGroupIn(TypedDict, total=False):
    message: str
    count: int
    decided: Verdicts
    finished: Verdicts


class NextGroupOut(TypedDict, total=False):
    group: list[int]
    kinds: dict[str, str]
    decided: Verdicts
    stop: str


async def next_group(state: NextGroupIn, runtime: Runtime[Deps]) -> NextGroupOut:
    """Contiguous reading calls run side by side; a call that writes, executes or asks runs alone, in order."""
    decided, finished = state["decided"], state.get("finished") or {}
    open_calls = [i for i in range(state["count"]) if is_ready(decided[str(i)]) and str(i) not in finished]
    if any(map(is_cancel, decided.values())):
        undone = _cancel(runtime.context, state, open_calls)
        return {"group": [], "kinds": {}, "decided": undone, "stop": "cancelled by the user"}
    group: list[int] = []
    kinds: dict[str, str] = {}
    for index in open_calls:
        info, waits = _info(runtime.context, state["message"], index, decided[str(index)])
        if (info.alone or waits) and group:
            break
        group.append(index)
        kinds[str(index)] = "question" if info.risk == "question" else info.kind
        if info.alone or waits:
            break
    return {"group": group, "kinds": kinds}


def _info(deps: Deps, message: str, index: int, ready: str) -> tuple[ToolInfo, bool]:
    """The tool, and whether the call asked to wait for those before it."""
    call = deps.journal.call(CallKey(message=message, index=index, attempt=attempt_of(ready)))
    info = deps.toolset.info(call.name)
    if info is None:
        raise RunError(f"Tool {call.name!r} is gone since its call was decided. Resume when it is back.")
    return info, call.args.get("wait_for_previous") is True


def _cancel(deps: Deps, state: NextGroupIn, indices: list[int]) -> dict[str, str]:
    """Answer what was to run: a person cancelled the batch."""
    gone: dict[str, str] = {}
    for index in indices:
        attempt = attempt_of(state["decided"][str(index)])
        key = CallKey(message=state["message"], index=index, attempt=attempt)
        text = load("run/call_cancelled").text(reason="the user cancelled the batch it belongs to")
        deps.journal.finish(key, deps.journal.call(key), cancelled(text))
        gone[str(index)] = verdict("cancel", attempt)
    return gone
