"""classifier: ask a helper model which of the two models a request needs."""

from langgraph.runtime import Runtime

from interlock.nodes._ask_json import Question, ask_json
from interlock.nodes.route._family import by_number
from interlock.nodes.route._verdict import StrategyIn, StrategyOut, conversation, if_usable
from interlock.prompts import load
from interlock.state.deps import Deps
from interlock.state.messages import Message, curated
from interlock.state.route import ROUTE_TIMEOUT_S, ModelChoice

_LOOKED_AT, _SHOWN = 20, 4
"""Of the last 20 entries, without tool traffic, the last 4 (gemini-cli's)."""


async def classifier(state: StrategyIn, runtime: Runtime[Deps]) -> StrategyOut:
    """Abstains where a score decides, where the request is a tool's answer, and when the helper fails."""
    history, request = conversation(runtime, state["head"])
    if by_number(runtime) or request.role == "tool":
        return {}
    system, task = load("route/classifier").parts(request=request.text)
    clock = runtime.context.clock
    started = clock.monotonic()
    question = Question(
        role="classifier",
        kind=ModelChoice,
        messages=[
            Message(role="system", content=system),
            *_recent(history),
            Message(role="user", content=task),
        ],
        head=state["head"],
        timeout_s=ROUTE_TIMEOUT_S,
    )
    found = await ask_json(question, runtime)
    took: StrategyOut = {"route_ms": state["route_ms"] + round((clock.monotonic() - started) * 1000)}
    if found is None:
        return took
    choice = found.answer
    verdict = if_usable(runtime, state, choice.model_choice, "classifier", choice.reasoning[:1000])
    return {**took, **verdict}


def _recent(history: list[Message]) -> list[Message]:
    """Without messages that are only calls, and without answers; what was said beside calls stays."""
    said = [m for m in curated(history)[-_LOOKED_AT:] if m.role != "tool" and m.text]
    return [Message(role=m.role, content=m.content, origin=m.origin) for m in said[-_SHOWN:]]
