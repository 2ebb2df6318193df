"""mode: lists the working modes, checks whether one allows a tool, or switches to another.

A switch is a batch of one in `tools`: decided, asked about and journalled like a model's. Nothing loops.
"""

import json
from collections.abc import Mapping
from typing import Any

from langgraph.graph import END, START

from interlock.graphs import nested_graph_builder
from interlock.graphs.graph import Graph
from interlock.graphs.pipeline import Pipeline
from interlock.nodes.mode import check_tool, load_modes
from interlock.state.messages import Message, ToolCall
from interlock.state.mode import DEFAULT, ModeInput, ModeOutput, ModeState
from interlock.state.run import ErrorInfo
from interlock.state.subagent import MAX_DEPTH
from interlock.state.workflow import WorkflowContext, error_from_state


def build(depth: int = MAX_DEPTH) -> Graph:
    """`depth`: levels of sub-agents, as for `tools`."""
    g = Graph("mode", ModeState)
    g.nodes(load_modes, check_tool)
    g.subgraph("switch", nested_graph_builder("tools", depth))

    g.edge(START, "load_modes")
    g.by_label("load_modes", {"list": END, "ask": "check_tool", "switch": "switch"})
    g.edge("check_tool", END)
    g.edge("switch", END)
    g.together("load_modes", "check_tool")
    return g


def initial_state(input: ModeInput, context: WorkflowContext) -> dict[str, Any]:
    head = ""
    if input.switch_to is not None:
        args = {"mode_slug": input.switch_to, "reason": input.reason}
        call = ToolCall(id="0.0", name="switch_mode", args={**args})
        head = context.transcript.append("", [Message(role="assistant", tool_calls=(call,))])
    return {
        "head": head,
        "tool": input.tool or "",
        "path": input.path or "",
        "approval_mode": context.approval_mode,
    }


def build_output(values: Mapping[str, Any], context: WorkflowContext) -> ModeOutput:
    answer = context.transcript.read_message(values["head"]) if values.get("head") else None
    failed = answer is not None and answer.status != "success"
    listed = values.get("listed")  # a run of an earlier version has none
    return ModeOutput(
        modes=json.loads(context.transcript.read_message(listed).text) if listed else [],
        current=values.get("mode") or DEFAULT,
        allowed=values.get("allowed"),
        error=ErrorInfo(type="rejected", message=answer.text)
        if failed and answer
        else error_from_state(values),
    )


PIPELINE = Pipeline(
    "mode", build, ModeInput, ModeOutput, prompt_field="reason", enter=initial_state, leave=build_output
)
