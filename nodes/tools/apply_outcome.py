"""apply_outcome: run the call again, or answer that its outcome is unknown."""

from langgraph.runtime import Runtime
from typing_extensions import TypedDict

from interlock.nodes.tools._decided import note_person
from interlock.nodes.tools._requests import answered
from interlock.prompts import load
from interlock.state.calls import CallKey, failure
from interlock.state.charts import ToolCallChart, step
from interlock.state.deps import Deps


class ApplyOutcomeIn(TypedDict, total=False):
    message: str
    index: int
    attempt: int
    approval: str
    status: str


class ApplyOutcomeOut(TypedDict, total=False):
    attempt: int
    approval: str
    status: str
    label: str


async def apply_outcome(state: ApplyOutcomeIn, runtime: Runtime[Deps]) -> ApplyOutcomeOut:
    """Redo is a new attempt with the same arguments; skip closes this one."""
    deps = runtime.context
    key = CallKey(message=state["message"], index=state["index"], attempt=state["attempt"])
    call = deps.journal.call(key)
    _, answer = answered(deps, state["approval"])
    redo = answer.choice == "proceed_once"
    note_person(runtime, key, state["approval"], answer, key.attempt + 1 if redo else 0)
    text = load("run/call_unknown_outcome").text()
    deps.journal.finish(key, call, failure("unknown_outcome", text))
    if redo:
        deps.journal.amend(key.model_copy(update={"attempt": key.attempt + 1}), call)
        return {"label": "redo", "attempt": key.attempt + 1, "approval": "", "status": "scheduled"}
    executing = step(ToolCallChart, "scheduled", "execute")
    return {"label": "skip", "status": step(ToolCallChart, executing, "fail")}
