"""override: the model that was named."""

from langgraph.runtime import Runtime

from interlock.nodes.route._verdict import StrategyIn, StrategyOut, chosen
from interlock.state.deps import Deps
from interlock.state.route import AUTO


async def override(state: StrategyIn, runtime: Runtime[Deps]) -> StrategyOut:
    asked = state["model"]
    if asked == AUTO:
        return {}
    return chosen(runtime, runtime.context.models.resolve(asked), "override", f"{asked} was asked for")
