"""default: the model when no other strategy has decided. Never abstains."""

from langgraph.runtime import Runtime

from interlock.nodes.route._verdict import StrategyIn, StrategyOut, chosen, unavailable
from interlock.state.deps import Deps
from interlock.state.route import AUTO


async def default(state: StrategyIn, runtime: Runtime[Deps]) -> StrategyOut:
    """What `auto` means without a choice, or the first model of the settings' fallbacks that is available."""
    deps = runtime.context
    usual = deps.models.resolve(AUTO)
    models = [usual, *(deps.models.resolve(name) for name in deps.settings.model.fallback)]
    gone = unavailable(runtime, state)
    usable = [m for m in models if m not in gone]
    reason = "no strategy before had a reason to choose another"
    if usable and usable[0] != usual:
        reason = f"{usual} is unavailable"
    return chosen(runtime, usable[0] if usable else usual, "default", reason)
