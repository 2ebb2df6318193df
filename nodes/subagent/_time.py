"""_time: how long the agent that a node works for has worked, and what it has left."""

from langgraph.runtime import Runtime

from interlock.state.deps import Deps


def spent_s(runtime: Runtime[Deps]) -> float:
    """Seconds of work of all nodes of the agent's graph, and of those inside it."""
    info = runtime.execution_info
    parts = info.checkpoint_ns.split("|") if info is not None else []
    inside = max((i for i, part in enumerate(parts) if part.startswith("subagent:")), default=-1)
    return runtime.context.steps.spent_s("|".join(parts[: inside + 1]))


def left_s(runtime: Runtime[Deps], agent: str) -> float:
    """Seconds, of the agent with this card; not positive: its time is up."""
    return runtime.context.agents.card(agent).definition.max_time_minutes * 60 - spent_s(runtime)
