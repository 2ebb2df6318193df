"""plan: understand, explore, design, write the plan, have it reviewed; once approved, it is handed over to `main`.

`turn` and `tools` alternate under plan mode until a person has decided; a model that stops without a plan is reminded.
A hook may stop or block the prompt, and an answer without calls.
"""

from collections.abc import Mapping
from typing import Any

from langgraph.graph import END, START

from interlock.graphs import nested_graph_builder
from interlock.graphs.graph import Graph
from interlock.graphs.hook_nodes import add_hooks
from interlock.graphs.pipeline import Pipeline
from interlock.nodes.main import TURN_ENDS, before_agent, nudge, route_after_context
from interlock.nodes.plan import (
    after_agent,
    finish,
    hand_over,
    open_plan,
    remind,
    route_after_tools,
    route_after_turn,
)
from interlock.state.plan import PlanInput, PlanOutput, PlanState
from interlock.state.run import ErrorInfo
from interlock.state.subagent import MAX_DEPTH
from interlock.state.workflow import WorkflowContext


def build(depth: int = MAX_DEPTH) -> Graph:
    """`depth`: levels of sub-agents below it."""
    g = Graph("plan", PlanState)
    g.node("open_plan", open_plan)
    g.subgraph("context", nested_graph_builder("context"))
    g.subgraph("turn", nested_graph_builder("turn"))
    g.subgraph("tools", nested_graph_builder("tools", depth))
    g.nodes(nudge, remind, hand_over, finish)
    ended = {"stopped": "finish", "blocked": "finish"}
    add_hooks(
        g,
        {
            "BeforeAgent": (before_agent, {"passed": "turn", **ended}),
            "AfterAgent": (after_agent, {"feedback": "turn", "passed": "remind", **ended}),
        },
    )

    g.edge(START, "open_plan", "context")
    g.route("context", route_after_context, {"plain": "turn", "hooked": "before_agent"})
    over = {"first loop": "nudge", **dict.fromkeys(TURN_ENDS, "finish")}
    g.route(
        "turn", route_after_turn, {"calls": "tools", "no calls": "remind", "answered": "after_agent", **over}
    )
    phases = dict.fromkeys(("requirements", "exploration", "design", "revision"), "turn")
    g.route(
        "tools",
        route_after_tools,
        {**phases, "approved": "hand_over", "rejected": "finish", "stopped": "finish"},
    )
    g.by_label("remind", {"once more": "turn", "give up": "finish"})
    g.edge("nudge", "turn")
    g.edge("hand_over", "finish", END)
    g.together("open_plan", "context")
    return g


def initial_state(input: PlanInput, context: WorkflowContext) -> dict[str, Any]:
    return {
        "prompt": context.record_prompt(input.prompt),
        "plan_name": input.plan_file or "",
        "model": context.model,
        "max_turns": context.limits.max_turns,
        "max_session_turns": context.limits.max_session_turns,
    }


def build_output(values: Mapping[str, Any], context: WorkflowContext) -> PlanOutput:  # noqa: ARG001 - every `leave` has this shape
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
    "plan",
    build,
    PlanInput,
    PlanOutput,
    prompt_field="prompt",
    hands_over_to="main_run",
    needs_model=True,
    enter=initial_state,
    leave=build_output,
)
