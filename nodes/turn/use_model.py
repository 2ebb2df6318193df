"""use_model: the routed model answers this prompt from now on."""

from langgraph.runtime import Runtime
from typing_extensions import TypedDict

from interlock.state.deps import Deps
from interlock.state.errors import RunError
from interlock.state.turn_events import ModelInfo, RouteEvent


class UseModelIn(TypedDict, total=False):
    chosen_model: str
    strategy: str
    route_reason: str
    failed_model: str
    unavailable: dict[str, str]


class UseModelOut(TypedDict, total=False):
    sticky_model: str
    failed_model: str
    attempt: int
    stream_problem: str
    turn_status: str
    error: dict[str, str]


async def use_model(state: UseModelIn, runtime: Runtime[Deps]) -> UseModelOut:
    """After a failure only a model that is available counts: else the failure stands."""
    model = state["chosen_model"]
    if state["failed_model"] and model in state["unavailable"]:
        return {"turn_status": "error"}
    if runtime.execution_info is None:
        raise RunError("use_model ran outside a graph.")
    strategy, reason = state["strategy"], state["route_reason"]
    runtime.context.steps.reasoned(runtime.execution_info.task_id, f"{model}, by {strategy}: {reason}")
    runtime.stream_writer(RouteEvent(model=model, strategy=strategy, reason=reason))
    runtime.stream_writer(ModelInfo(model=model))
    return {"sticky_model": model, "failed_model": "", "attempt": 1, "stream_problem": "", "error": {}}
