"""numerical: ask a helper model for a score of the request's complexity."""

from langgraph.runtime import Runtime

from interlock.nodes._ask_json import Question, ask_json
from interlock.nodes.route._family import by_number
from interlock.nodes.route._verdict import StrategyIn, StrategyOut, conversation, if_usable
from interlock.prompts import load
from interlock.state.deps import Deps
from interlock.state.messages import Message, curated, open_calls
from interlock.state.route import ROUTE_TIMEOUT_S, Complexity

_LOOKED_AT = 8
"""Entries that the helper sees, tool traffic included (gemini-cli's)."""


async def numerical(state: StrategyIn, runtime: Runtime[Deps]) -> StrategyOut:
    """Abstains but for the families that ask for it, and when the helper fails."""
    if not by_number(runtime):
        return {}
    history, request = conversation(runtime, state["head"])
    system, task = load("route/numerical").parts(request=request.text)
    deps = runtime.context
    started = deps.clock.monotonic()
    question = Question(
        role="classifier",
        kind=Complexity,
        messages=[
            Message(role="system", content=system),
            *_recent(history),
            Message(role="user", content=task),
        ],
        head=state["head"],
        timeout_s=ROUTE_TIMEOUT_S,
    )
    found = await ask_json(question, runtime)
    took: StrategyOut = {"route_ms": state["route_ms"] + round((deps.clock.monotonic() - started) * 1000)}
    if found is None:
        return took
    score, threshold = found.answer.complexity_score, deps.settings.model.classifier_threshold
    reason = f"{found.answer.complexity_reasoning[:1000]} (complexity {score}, pro from {threshold})"
    verdict = if_usable(runtime, state, "pro" if score >= threshold else "flash", "numerical", reason)
    return {**took, **verdict}


def _recent(history: list[Message]) -> list[Message]:
    """The last 8, from what isn't tool traffic to where no call is open."""
    last = curated(history)[-_LOOKED_AT:]
    while last and (last[0].role == "tool" or last[0].tool_calls):
        last.pop(0)
    while open_calls(last):
        last.pop()
    return last
