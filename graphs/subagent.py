"""subagent: one sub-agent, from the call that requests it to the result that answers it.

Turns and tools alternate until `complete_task`, the end of turns or time, or a failure; `recover` gives one more turn.
"""

from collections.abc import Mapping
from typing import Any

from langgraph.graph import END, START
from pydantic import JsonValue

from interlock.graphs import nested_graph_builder
from interlock.graphs.graph import Graph
from interlock.graphs.pipeline import Pipeline
from interlock.nodes.main import nudge
from interlock.nodes.subagent import (
    check_end,
    check_result,
    finish,
    recover,
    route_after_turn,
    send_back,
    start,
    take_notes,
)
from interlock.nodes.tools_results import require_recorded_result
from interlock.state.calls import CallKey, ToolResult
from interlock.state.errors import InputError
from interlock.state.messages import Message, ToolCall
from interlock.state.subagent import (
    MAX_DEPTH,
    SubagentIn,
    SubagentInput,
    SubagentOut,
    SubagentOutput,
    SubagentState,
)
from interlock.state.text import clean_json, did_you_mean
from interlock.state.workflow import WorkflowContext


def build(depth: int = MAX_DEPTH - 1, name: str = "subagent") -> Graph:
    """`depth`: levels of agents that may still be started below this one."""
    g = Graph(name, SubagentState, input=SubagentIn, output=SubagentOut)
    g.nodes(start, check_end)
    g.subgraph("context", nested_graph_builder("context"))
    g.subgraph("turn", nested_graph_builder("turn"))
    g.subgraph("tools", nested_graph_builder("tools", depth))
    g.nodes(take_notes, check_result, nudge, send_back, recover, finish)

    g.edge(START, "start", "context", "check_end")
    g.by_label("check_end", {"turn": "turn", "time or turns are up": "recover"})
    turned = {"calls": "tools", "no call": "recover", "first loop": "nudge", "failed": "finish"}
    g.route("turn", route_after_turn, turned)
    g.edge("tools", "take_notes", "check_result")
    ended = {"complete": "finish", "aborted": "finish"}
    g.by_label("check_result", {**ended, "open questions": "send_back", "go on": "check_end"})
    g.edge("nudge", "check_end")
    g.edge("send_back", "check_end")
    g.by_label("recover", {"last chance": "turn", "give up": "finish"})
    g.edge("finish", END)
    return g


def initial_state(input: SubagentInput, context: WorkflowContext) -> dict[str, Any]:
    if input.agent not in context.agents:
        hint = did_you_mean(input.agent, context.agents)
        raise InputError(
            f"Input field 'agent': no agent {input.agent!r}.{hint} There are {', '.join(context.agents)}.",
            "agent",
        )
    if input.prompt is None and not input.inputs:
        raise InputError("Input field 'prompt': say what the agent should do, or give 'inputs'.", "prompt")
    args: dict[str, JsonValue] = {"agent_name": input.agent, "prompt": input.prompt or ""}
    if input.inputs:
        args["inputs"] = input.inputs
    return record_call_and_build_state("invoke_agent", args, context)


def record_call_and_build_state(
    tool: str, args: dict[str, JsonValue], context: WorkflowContext
) -> dict[str, Any]:
    call = ToolCall.model_validate({"id": "0", "name": tool, "args": clean_json(args)})
    message = context.transcript.append("", [Message(role="assistant", tool_calls=(call,))])
    return {"message": message, "index": 0, "attempt": 1, "approval_mode": context.approval_mode}


def build_output(values: Mapping[str, Any], context: WorkflowContext) -> SubagentOutput:
    meta: dict[str, Any] = dict(recorded_agent_result(values, context).meta)
    return SubagentOutput(
        status=meta["reason"],
        result=meta["result"],
        reason=meta["why"],
        turns=meta["turns"],
        duration_s=meta["duration_ms"] / 1000,
        error=meta.get("error"),
    )


def recorded_agent_result(values: Mapping[str, Any], context: WorkflowContext) -> ToolResult:
    return require_recorded_result(context.journal, CallKey.parse(values["call"]))


PIPELINE = Pipeline(
    "subagent",
    build,
    SubagentInput,
    SubagentOutput,
    prompt_field="prompt",
    needs_model=True,
    enter=initial_state,
    leave=build_output,
)
