"""remind: tell a model that stopped that no plan was handed in."""

from langgraph.runtime import Runtime
from typing_extensions import TypedDict

from interlock.prompts import render
from interlock.state.deps import Deps
from interlock.state.messages import Message
from interlock.state.plan import PLAN_NAME, REMINDERS


class RemindIn(TypedDict, total=False):
    head: str
    plan_name: str
    reminders: int


class RemindOut(TypedDict, total=False):
    head: str
    reminders: int
    error: dict[str, str]


async def remind(state: RemindIn, runtime: Runtime[Deps]) -> RemindOut:
    """A few times; then the run ends without a plan."""
    if state["reminders"] >= REMINDERS:
        message = (
            f"The model stopped without a plan, after {REMINDERS} reminders. Say more of what is wanted."
        )
        return {"reminders": state["reminders"] + 1, "error": {"type": "no_plan", "message": message}}
    text = render("plan/remind", file=state["plan_name"] or PLAN_NAME)
    reminder = Message(role="user", origin="nudge", content=text)
    return {
        "head": runtime.context.transcript.append(state["head"], [reminder]),
        "reminders": state["reminders"] + 1,
    }
