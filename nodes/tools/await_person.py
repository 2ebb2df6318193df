"""await_person: stop until a person has answered a request; stands in the graphs under several names."""

from langgraph.types import interrupt
from typing_extensions import TypedDict


class AwaitPersonIn(TypedDict, total=False):
    approval: str


class AwaitPersonOut(TypedDict, total=False):
    approval: str


async def await_person(state: AwaitPersonIn) -> AwaitPersonOut:
    """Carries the request's key only; the answer is a row. Runs again on every resume, so it does nothing else."""
    interrupt(state["approval"])
    return {"approval": state["approval"]}
