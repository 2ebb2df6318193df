"""plan: understand, explore, design, write the plan, have it reviewed; approved, it is handed over to `main`.

`turn` and `tools` alternate under plan mode until a person has decided; a model that stops without a plan is reminded.
A hook may stop or block the prompt; what it says of an answer isn't asked here, where a person reviews the plan.
"""

from collections.abc import Mapping
from typing import Any

from langgraph.graph import END, START

from interlock.graphs import tools, turn
from interlock.graphs._pipeline import Graph, Pipeline
from interlock.nodes.hooks import ask_hook, await_person
from interlock.nodes.main import after_before_agent, before_agent, nudge
from interlock.nodes.plan import (
    after_open_plan,
    after_remind,
    after_tools,
    after_turn,
    finish,
    hand_over,
    open_plan,
    remind,
)
from interlock.state.messages import Message
from interlock.state.plan import PlanInput, PlanOutput, PlanState
from interlock.state.run import ErrorInfo
from interlock.state.subagent import MAX_DEPTH
from interlock.state.text import clean_json
from interlock.state.workflow import WorkflowContext


def build(depth: int = MAX_DEPTH) -> Graph:
    """`depth`: levels of sub-agents below it."""
    g = Graph("plan", PlanState)
    g.node("open_plan", open_plan)
    g.node("before_agent", before_agent)
    g.node("ask_hook", ask_hook)
    g.node("await_hook", await_person)
    g.part("turn", turn.build())
    g.part("tools", tools.build(depth))
    g.node("nudge", nudge)
    g.node("remind", remind)
    g.node("hand_over", hand_over)
    g.node("finish", finish)

    g.edge(START, "open_plan")
    g.route("open_plan", after_open_plan, {"plain": "turn", "hooked": "before_agent"})
    g.route("before_agent", after_before_agent, {"passed": "turn", "ended": "finish", "unknown": "ask_hook"})
    g.edge("ask_hook", "await_hook")
    g.edge("await_hook", "before_agent")
    g.route(
        "turn",
        after_turn,
        {"calls": "tools", "no calls": "remind", "first loop": "nudge", "ended": "finish"},
    )
    g.route(
        "tools", after_tools, {"results": "turn", "approved": "hand_over", "rejected or stopped": "finish"}
    )
    g.route("remind", after_remind, {"once more": "turn", "give up": "finish"})
    g.edge("nudge", "turn")
    g.edge("hand_over", "finish")
    g.edge("finish", END)
    return g


def enter(given: PlanInput, context: WorkflowContext) -> dict[str, Any]:
    prompt = Message(role="user", origin="person", content=str(clean_json(given.prompt)))
    return {
        "prompt": context.transcript.append("", [prompt]),
        "plan_name": given.plan_file or "",
        "model": context.model,
        "max_turns": context.limits.max_turns,
        "max_session_turns": context.limits.max_session_turns,
    }


def leave(values: Mapping[str, Any], context: WorkflowContext) -> PlanOutput:  # noqa: ARG001 - every `leave` has this shape
    approved = values["status"] == "approved"
    error = values.get("error") if values["status"] == "failed" else None
    return PlanOutput(
        status=values["status"],
        plan_file=values.get("plan_file") or None,
        steps=values.get("plan_steps") or [],
        next_mode=values["approval_mode"] if approved else None,
        main_run=values.get("main_run") or None,
        error=ErrorInfo(**error) if error else None,
    )


PIPELINE = Pipeline(
    "plan", build, PlanInput, PlanOutput, prompt_field="prompt", needs_model=True, enter=enter, leave=leave
)
