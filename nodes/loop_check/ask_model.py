"""ask_model: ask a model whether the last turns are a loop."""

from langgraph.runtime import Runtime
from typing_extensions import TypedDict

from interlock.nodes.loop_check._look import LookIn, look
from interlock.state.deps import Deps
from interlock.state.loop_check import CONFIDENCE, Judgement


class AskModelOut(TypedDict, total=False):
    judgements: list[Judgement]
    double_check: bool


async def ask_model(state: LookIn, runtime: Runtime[Deps]) -> AskModelOut:
    """Its suspicion alone is no loop, unless the stronger model is unavailable."""
    confidence = await look("loop_check", state, runtime)
    deps = runtime.context
    stronger = deps.models.resolve(deps.settings.model.roles.get("loop_double_check", "pro"))
    suspects = confidence is not None and confidence >= CONFIDENCE
    return {
        "judgements": [*state.get("judgements", []), {"confidence": confidence}],
        "double_check": suspects and stronger not in state.get("unavailable", {}),
    }
