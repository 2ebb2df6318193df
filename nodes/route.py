"""route: choose the answering model: strategies run in order, the first verdict wins."""

from collections.abc import Mapping, Sequence
from typing import Literal, TypeVar

from langgraph.runtime import Runtime
from pydantic import BaseModel

from interlock.nodes.helper_model import ask_json, build_question_messages
from interlock.prompts import load_prompt
from interlock.state.deps import Deps
from interlock.state.messages import Message, curate_history, unanswered_calls
from interlock.state.node import node, require_task_id
from interlock.state.route import AUTO, EXCLUDED, ROUTE_TIMEOUT_S, Complexity, ModelChoice, RouteState

_LOOKED_AT, _SHOWN = 20, 4
"""Of the last 20 entries, without tool traffic, the classifier sees the last 4 (gemini-cli's)."""
_LOOKED_AT_FOR_SCORE = 8
"""Entries that are scored, tool traffic included (gemini-cli's)."""
T = TypeVar("T", bound=BaseModel)
_READS = ("head", "model", "failed_model", "approval_mode", "approved_plan", "unavailable", "route_ms")
_WRITES = ("chosen_model", "strategy", "route_reason", "route_ms")
_names_a_model = node(reads=_READS, writes=_WRITES, labels=("chosen", "abstained"))
_judges = node(reads=_READS, writes=_WRITES, labels=("flash", "pro", "abstained"))
"""A strategy that chooses between the two aliases."""
_ABSTAINED: RouteState = {"label": "abstained"}


@_names_a_model
async def fallback(state: RouteState, runtime: Runtime[Deps]) -> RouteState:
    """Runs first. What fails under `auto` is replaced; a model requested by name only if the input excludes it."""
    fresh: RouteState = {**_ABSTAINED, "chosen_model": "", "strategy": "", "route_reason": "", "route_ms": 0}
    deps, unavailable = runtime.context, resolve_unavailable_models(runtime, state)
    failed = state.get("failed_model") if state["model"] == AUTO else state["model"]
    model = deps.models.resolve_alias(failed) if failed else ""
    if not model or (state["model"] != AUTO and unavailable.get(model) != EXCLUDED):
        return fresh
    models = [deps.models.resolve_alias(name) for name in deps.settings.model.fallback]
    other = find_replacement_model(model, models, unavailable)
    if not other:
        return fresh
    return {
        **fresh,
        **record_model_choice(
            runtime, other, "fallback", f"{model} is unavailable{_LASTING[unavailable[model]]}"
        ),
    }


_LASTING = {"run": " for the rest of this run", "prompt": " for this prompt", EXCLUDED: ""}


@_names_a_model
async def override(state: RouteState, runtime: Runtime[Deps]) -> RouteState:
    asked = state["model"]
    if asked == AUTO:
        return _ABSTAINED
    model = runtime.context.models.resolve_alias(asked)
    alone = resolve_unavailable_models(runtime, state).get(model) == EXCLUDED
    left = "; it is unavailable, and so is every model that could replace it" if alone else ""
    return record_model_choice(runtime, model, "override", f"{asked} was asked for{left}")


@_judges
async def approval_mode(state: RouteState, runtime: Runtime[Deps]) -> RouteState:
    if state.get("approval_mode") == "plan":
        return record_choice_if_available(runtime, state, "pro", "approval_mode", "the run is in plan mode")
    if state.get("approved_plan"):
        return record_choice_if_available(
            runtime, state, "flash", "approval_mode", "an approved plan is carried out"
        )
    return _ABSTAINED


@_judges
async def classifier(state: RouteState, runtime: Runtime[Deps]) -> RouteState:
    """Abstains if a score decides, if the request is a tool's answer, and if the helper fails."""
    history, request = split_history_and_request(runtime, state["head"])
    if is_numerical_routing_enabled(runtime) or request.role == "tool":
        return _ABSTAINED
    prompt = load_prompt("route/classifier").render_system_and_user(request=request.text)
    choice, took = await _ask_classifier(
        state, prompt, _history_for_classifier(history), ModelChoice, runtime
    )
    if choice is None:
        return {**_ABSTAINED, **took}
    verdict = record_choice_if_available(
        runtime, state, choice.model_choice, "classifier", choice.reasoning[:1000]
    )
    return {**took, **verdict}


async def _ask_classifier(
    state: RouteState,
    prompt: tuple[str, str],
    history: list[Message],
    answer_type: type[T],
    runtime: Runtime[Deps],
) -> tuple[T | None, RouteState]:
    """The helper's answer, if any, and the time it took."""
    clock = runtime.context.clock
    started = clock.monotonic()
    messages = build_question_messages(*prompt, history)
    found = await ask_json(runtime, answer_type, "classifier", messages, state["head"], ROUTE_TIMEOUT_S)
    took: RouteState = {"route_ms": state["route_ms"] + round((clock.monotonic() - started) * 1000)}
    return found.answer if found else None, took


def _history_for_classifier(history: list[Message]) -> list[Message]:
    """Recent entries without answers and without messages that are only calls; text beside calls is kept."""
    spoken = [m for m in curate_history(history)[-_LOOKED_AT:] if m.role != "tool" and m.text]
    return [Message(role=m.role, content=m.content, origin=m.origin) for m in spoken[-_SHOWN:]]


@_judges
async def numerical(state: RouteState, runtime: Runtime[Deps]) -> RouteState:
    """Abstains except for families that use it, and if the helper fails."""
    if not is_numerical_routing_enabled(runtime):
        return _ABSTAINED
    history, request = split_history_and_request(runtime, state["head"])
    prompt = load_prompt("route/numerical").render_system_and_user(request=request.text)
    found, took = await _ask_classifier(state, prompt, _history_for_scoring(history), Complexity, runtime)
    if found is None:
        return {**_ABSTAINED, **took}
    score, threshold = found.complexity_score, runtime.context.settings.model.classifier_threshold
    reason = f"{found.complexity_reasoning[:1000]} (complexity {score}, pro from {threshold})"
    verdict = record_choice_if_available(
        runtime, state, "pro" if score >= threshold else "flash", "numerical", reason
    )
    return {**took, **verdict}


def _history_for_scoring(history: list[Message]) -> list[Message]:
    """The last 8 entries, starting outside tool traffic and ending with no open call."""
    last = curate_history(history)[-_LOOKED_AT_FOR_SCORE:]
    while last and (last[0].role == "tool" or last[0].tool_calls):
        last.pop(0)
    while unanswered_calls(last):
        last.pop()
    return last


@_names_a_model
async def default(state: RouteState, runtime: Runtime[Deps]) -> RouteState:
    """The default of `auto`, or the first available model of the fallbacks in settings."""
    deps = runtime.context
    usual = deps.models.resolve_alias(AUTO)
    models = [usual, *(deps.models.resolve_alias(name) for name in deps.settings.model.fallback)]
    unavailable = resolve_unavailable_models(runtime, state)
    usable = [m for m in models if m not in unavailable]
    reason = "no strategy before had a reason to choose another"
    if usable and usable[0] != usual:
        reason = f"{usual} is unavailable"
    return record_model_choice(runtime, usable[0] if usable else usual, "default", reason)


def record_model_choice(runtime: Runtime[Deps], model: str, strategy: str, reason: str) -> RouteState:
    """A verdict; its reason is recorded with the step."""
    runtime.context.steps.record_reason(require_task_id(runtime, strategy), f"{model}: {reason}")
    return {"label": "chosen", "chosen_model": model, "strategy": strategy, "route_reason": reason}


def record_choice_if_available(
    runtime: Runtime[Deps], state: RouteState, alias: Literal["flash", "pro"], strategy: str, reason: str
) -> RouteState:
    """The model behind `alias`; abstains if it is unavailable."""
    model = runtime.context.models.resolve_alias(alias)
    if model in resolve_unavailable_models(runtime, state):
        return _ABSTAINED
    return {**record_model_choice(runtime, model, strategy, reason), "label": alias}


def resolve_unavailable_models(runtime: Runtime[Deps], state: RouteState) -> dict[str, str]:
    """Resolved name → how long; standalone input may contain aliases."""
    resolve = runtime.context.models.resolve_alias
    return {resolve(name): how for name, how in state.get("unavailable", {}).items()}


def find_replacement_model(model: str, models: Sequence[str], unavailable: Mapping[str, str]) -> str:
    """Which of `models` (the settings', in order) replaces an unavailable one; empty: none.

    A model not among them is only replaced by one of its provider: there may be no key for others.
    """
    if model in models:
        at = models.index(model)
        candidates = [*models[at + 1 :], *models[:at][::-1]]
    else:
        candidates = [m for m in models if _provider_prefix(m) == _provider_prefix(model)]
    return next((m for m in candidates if m not in unavailable and m != model), "")


def _provider_prefix(model: str) -> str:
    provider, colon, _ = model.partition(":")
    return provider if colon else ""


def split_history_and_request(runtime: Runtime[Deps], head: str) -> tuple[list[Message], Message]:
    """The history without system messages, and the request (the last message)."""
    messages = [m for m in runtime.context.transcript.read(head) if m.role != "system"]
    return messages[:-1], messages[-1]


def is_numerical_routing_enabled(runtime: Runtime[Deps]) -> bool:
    """Whether settings list the family of `pro` for numerical routing."""
    deps = runtime.context
    families = deps.settings.model.numerical_routing
    return bool(families) and deps.models.resolve_alias("pro").startswith(tuple(families))
