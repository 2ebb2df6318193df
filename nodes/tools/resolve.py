"""resolve: find the tool that a call names."""

from langgraph.runtime import Runtime
from typing_extensions import TypedDict

from interlock.nodes.tools._decided import note_change
from interlock.state.calls import CallKey, CallView, failure
from interlock.state.charts import ToolCallChart, step
from interlock.state.deps import Deps


class ResolveIn(TypedDict, total=False):
    message: str
    index: int
    approval_mode: str


class ResolveOut(TypedDict, total=False):
    attempt: int
    asks: int
    by_person: bool
    by_hook: bool
    must_ask: bool
    hook_attempt: int
    hook_reason: str
    approval: str
    status: str
    label: str


async def resolve(state: ResolveIn, runtime: Runtime[Deps]) -> ResolveOut:
    """An unknown tool is an error with the nearest names."""
    deps = runtime.context
    key = CallKey(message=state["message"], index=state["index"])
    call = deps.journal.call(key)
    fresh: ResolveOut = {
        "attempt": 1,
        "asks": 0,
        "by_person": False,
        "by_hook": False,
        "must_ask": False,
        "hook_attempt": 0,
        "hook_reason": "",
        "approval": "",
        "status": "validating",
        "label": "known",
    }
    if deps.toolset.info(call.name) is not None:
        return {**fresh, "attempt": _placed(runtime, state, key, call)}
    near = deps.toolset.nearest(call.name)
    hint = f" Did you mean {', '.join(map(repr, near))}?" if near else ""
    deps.journal.finish(key, call, failure("tool_not_registered", f"No tool {call.name!r}.{hint}"))
    return {**fresh, "label": "unknown", "status": step(ToolCallChart, fresh["status"], "fail")}


def _placed(runtime: Runtime[Deps], state: ResolveIn, key: CallKey, call: CallView) -> int:
    """In plan mode a relative Markdown file is one of the plans folder; the attempt whose arguments say so."""
    deps = runtime.context
    placed = deps.plans.placed(call) if state.get("approval_mode") == "plan" else None
    if placed is None:
        return 1
    deps.journal.amend(key.model_copy(update={"attempt": 2}), placed)
    note_change(runtime, key, "program", 2, "plan mode", "a plan's file lies in the plans folder")
    return 2
