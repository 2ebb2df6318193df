"""recover: give an agent that should have ended one last turn."""

from langgraph.runtime import Runtime
from typing_extensions import TypedDict

from interlock.nodes.subagent._why import why
from interlock.prompts import render
from interlock.state.deps import Deps
from interlock.state.messages import Message
from interlock.state.subagent import GRACE_S


class RecoverIn(TypedDict, total=False):
    agent: str
    head: str
    turn_no: int
    recovering: bool
    reason: str
    error: dict[str, str]


class RecoverOut(TypedDict, total=False):
    label: str
    head: str
    reason: str
    recovering: bool
    max_turns: int
    time_left_s: float
    error: dict[str, str]


async def recover(state: RecoverIn, runtime: Runtime[Deps]) -> RecoverOut:
    """Exactly one: the second time it is given up."""
    if state["recovering"]:
        return {"label": "give up"}
    deps = runtime.context
    timed_out = (state.get("error") or {}).get("type") == "timeout"
    reason = state["reason"] or ("timeout" if timed_out else "no_complete_task")
    text = render("subagent/last_chance", why=why(reason, deps.agents.card(state["agent"]).definition))
    warning = Message(role="user", origin="nudge", content=text)
    return {
        "label": "last chance",
        "head": deps.transcript.append(state["head"], [warning]),
        "reason": reason,
        "recovering": True,
        "max_turns": state["turn_no"] + 1,
        "time_left_s": GRACE_S,
        "error": {},
    }
