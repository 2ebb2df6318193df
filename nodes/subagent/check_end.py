"""check_end: has the agent used up its turns or its time?"""

from langgraph.runtime import Runtime
from typing_extensions import TypedDict

from interlock.nodes.subagent._time import left_s
from interlock.state.deps import Deps


class CheckEndIn(TypedDict, total=False):
    agent: str
    turn_no: int
    recovering: bool


class CheckEndOut(TypedDict, total=False):
    label: str
    reason: str
    time_left_s: float


async def check_end(state: CheckEndIn, runtime: Runtime[Deps]) -> CheckEndOut:
    """Time is what its nodes worked; while a person decides, nothing does."""
    if state["recovering"]:
        return {"label": "recover"}
    definition = runtime.context.agents.card(state["agent"]).definition
    left = left_s(runtime, state["agent"])
    if left <= 0:
        return {"label": "recover", "reason": "timeout"}
    if state["turn_no"] >= definition.max_turns:
        return {"label": "recover", "reason": "max_turns"}
    return {"label": "turn", "time_left_s": left}
