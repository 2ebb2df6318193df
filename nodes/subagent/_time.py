"""_time: how long the agent that a node works for has worked."""

from langgraph.runtime import Runtime

from interlock.state.deps import Deps


def spent_s(runtime: Runtime[Deps]) -> float:
    """Seconds of work of all nodes of this node's graph, and of those inside it."""
    info = runtime.execution_info
    namespace = info.checkpoint_ns if info is not None else ""
    return runtime.context.steps.spent_s(namespace.rpartition("|")[0])
