"""_family: which models are chosen by a score."""

from langgraph.runtime import Runtime

from interlock.state.deps import Deps


def by_number(runtime: Runtime[Deps]) -> bool:
    """The family of `pro` asks for numerical routing in settings."""
    deps = runtime.context
    families = deps.settings.model.numerical_routing
    return bool(families) and deps.models.resolve("pro").startswith(tuple(families))
