"""await_session: stop until a person has said what became of a session's hooks."""

from langgraph.types import interrupt
from typing_extensions import TypedDict


class AwaitSessionIn(TypedDict, total=False):
    session_request: str


class AwaitSessionOut(TypedDict, total=False):
    session_request: str


async def await_session(state: AwaitSessionIn) -> AwaitSessionOut:
    interrupt(state["session_request"])
    return {"session_request": ""}
