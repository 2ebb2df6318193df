"""_verdict: what every strategy reads and writes."""

from collections.abc import Mapping, Sequence

from langgraph.runtime import Runtime
from typing_extensions import TypedDict

from interlock.state.deps import Deps
from interlock.state.errors import RunError
from interlock.state.messages import Message


class StrategyIn(TypedDict, total=False):
    head: str
    model: str
    failed_model: str
    approval_mode: str
    approved_plan: bool
    unavailable: dict[str, str]
    route_ms: int


class StrategyOut(TypedDict, total=False):
    chosen_model: str
    strategy: str
    route_reason: str
    route_ms: int


def chosen(runtime: Runtime[Deps], model: str, strategy: str, reason: str) -> StrategyOut:
    """A verdict; its reason is kept with the step."""
    if runtime.execution_info is None:
        raise RunError(f"{strategy} ran outside a graph.")
    runtime.context.steps.reasoned(runtime.execution_info.task_id, f"{model}: {reason}")
    return {"chosen_model": model, "strategy": strategy, "route_reason": reason}


def if_usable(
    runtime: Runtime[Deps], state: StrategyIn, alias: str, strategy: str, reason: str
) -> StrategyOut:
    """The model that `alias` means, unless it is unavailable: then this strategy abstains."""
    model = runtime.context.models.resolve(alias)
    return {} if model in unavailable(runtime, state) else chosen(runtime, model, strategy, reason)


def unavailable(runtime: Runtime[Deps], state: StrategyIn) -> dict[str, str]:
    """Resolved name → for how long; alone, aliases may be handed in."""
    resolve = runtime.context.models.resolve
    return {resolve(name): how for name, how in state.get("unavailable", {}).items()}


def stand_in(model: str, models: Sequence[str], gone: Mapping[str, str]) -> str:
    """Which of `models` (those of the settings, in order) answers for an unavailable one; empty: none can.

    One that isn't among them is only replaced by models of its own provider: others may have no key here.
    """
    if model in models:
        at = models.index(model)
        candidates = [*models[at + 1 :], *models[:at][::-1]]
    else:
        candidates = [m for m in models if _provider(m) == _provider(model)]
    return next((m for m in candidates if m not in gone and m != model), "")


def _provider(model: str) -> str:
    provider, colon, _ = model.partition(":")
    return provider if colon else ""


def conversation(runtime: Runtime[Deps], head: str) -> tuple[list[Message], Message]:
    """The history without system messages, and the request, which is the last message."""
    messages = [m for m in runtime.context.transcript.read(head) if m.role != "system"]
    return messages[:-1], messages[-1]
