"""fallback: another model for one that is unavailable."""

from langgraph.runtime import Runtime

from interlock.nodes.route._verdict import StrategyIn, StrategyOut, chosen, stand_in, unavailable
from interlock.state.deps import Deps
from interlock.state.route import AUTO


async def fallback(state: StrategyIn, runtime: Runtime[Deps]) -> StrategyOut:
    """First of all strategies; `auto` as such is always available."""
    fresh: StrategyOut = {"chosen_model": "", "strategy": "", "route_reason": "", "route_ms": 0}
    asked = state.get("failed_model") or state["model"]
    if asked == AUTO:
        return fresh
    deps = runtime.context
    model, gone = deps.models.resolve(asked), unavailable(runtime, state)
    if model not in gone:
        return fresh
    models = [deps.models.resolve(name) for name in deps.settings.model.fallback]
    other = stand_in(model, models, gone)
    if not other:
        return fresh
    long = "for the rest of this run" if gone[model] == "run" else "for this prompt"
    return {**fresh, **chosen(runtime, other, "fallback", f"{model} is unavailable {long}")}
