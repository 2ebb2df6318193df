"""double_check: ask the stronger model about the same turns."""

from langgraph.runtime import Runtime
from typing_extensions import TypedDict

from interlock.nodes.loop_check._look import LookIn, look
from interlock.state.deps import Deps
from interlock.state.loop_check import Judgement


class DoubleCheckOut(TypedDict, total=False):
    judgements: list[Judgement]


async def double_check(state: LookIn, runtime: Runtime[Deps]) -> DoubleCheckOut:
    """A false stop is worse than a wasted turn: when this model fails, there is no loop."""
    earlier = state.get("judgements", [])
    before: LookIn = {**state, "judgements": earlier[:-1]}
    confidence = await look("loop_double_check", before, runtime)
    return {"judgements": [*earlier[:-1], {**earlier[-1], "double": confidence}]}
