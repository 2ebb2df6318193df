"""validate: check a call's arguments, whoever wrote them."""

from langgraph.runtime import Runtime
from typing_extensions import TypedDict

from interlock.state.calls import CallKey, failure
from interlock.state.charts import ToolCallChart, step
from interlock.state.deps import Deps


class ValidateIn(TypedDict, total=False):
    message: str
    index: int
    attempt: int
    status: str


class ValidateOut(TypedDict, total=False):
    status: str
    label: str


async def validate(state: ValidateIn, runtime: Runtime[Deps]) -> ValidateOut:
    """Bad arguments are an error that names the field."""
    deps = runtime.context
    key = CallKey(message=state["message"], index=state["index"], attempt=state["attempt"])
    call = deps.journal.call(key)
    problem = deps.toolset.invalid(call)
    if problem is None:
        return {"label": "valid"}
    deps.journal.finish(key, call, failure("invalid_tool_params", problem))
    return {"label": "invalid", "status": step(ToolCallChart, state["status"], "fail")}
