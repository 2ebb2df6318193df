"""go_on: let the model go on with what its last answer announced."""

from langgraph.runtime import Runtime
from typing_extensions import TypedDict

from interlock.prompts import load
from interlock.state.deps import Deps
from interlock.state.messages import Message


class GoOnIn(TypedDict, total=False):
    head: str


class GoOnOut(TypedDict, total=False):
    head: str


async def go_on(state: GoOnIn, runtime: Runtime[Deps]) -> GoOnOut:
    """It costs a turn, like any other message: the limit of turns holds."""
    message = Message(role="user", origin="continue", content=load("next_speaker/go_on").text())
    return {"head": runtime.context.transcript.append(state["head"], [message])}
