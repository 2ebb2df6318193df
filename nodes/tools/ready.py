"""ready: the call may run when every call of its batch is decided."""

from typing_extensions import TypedDict

from interlock.nodes.tools._verdicts import verdict
from interlock.state.charts import ToolCallChart, step
from interlock.state.tools import Verdicts


class ReadyIn(TypedDict, total=False):
    index: int
    attempt: int
    by_hook: bool
    approval: str
    status: str


class ReadyOut(TypedDict, total=False):
    status: str
    decided: Verdicts


async def ready(state: ReadyIn) -> ReadyOut:
    word = verdict("changed" if state.get("by_hook") else "ready", state["attempt"], state["approval"])
    return {
        "status": step(ToolCallChart, state["status"], "schedule"),
        "decided": {str(state["index"]): word},
    }
