"""approval_mode: plan with the stronger model, carry an approved plan out with the quicker one."""

from langgraph.runtime import Runtime

from interlock.nodes.route._verdict import StrategyIn, StrategyOut, if_usable
from interlock.state.deps import Deps


async def approval_mode(state: StrategyIn, runtime: Runtime[Deps]) -> StrategyOut:
    if state.get("approval_mode") == "plan":
        return if_usable(runtime, state, "pro", "approval_mode", "the run is in plan mode")
    if state.get("approved_plan"):
        return if_usable(runtime, state, "flash", "approval_mode", "an approved plan is carried out")
    return {}
