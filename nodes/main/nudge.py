"""nudge: tell the model what it repeats, and ask for another way."""

from langgraph.runtime import Runtime
from typing_extensions import TypedDict

from interlock.prompts import load
from interlock.state.deps import Deps
from interlock.state.messages import Message


class NudgeIn(TypedDict, total=False):
    head: str
    loop_found: dict[str, str]


class NudgeOut(TypedDict, total=False):
    head: str


async def nudge(state: NudgeIn, runtime: Runtime[Deps]) -> NudgeOut:
    """It costs a turn, like any other message."""
    text = load("loop_check/nudge").text(detail=state["loop_found"]["detail"])
    message = Message(role="user", origin="nudge", content=text)
    return {"head": runtime.context.transcript.append(state["head"], [message])}
