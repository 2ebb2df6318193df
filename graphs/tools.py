"""tools: one batch of calls. Every call is decided first, all side by side; then they are executed, group by group.

`next_group` and `collect` loop until no group is left; the last `collect` answers every call and ends the batch.
"""

from collections.abc import Mapping
from typing import Any, cast

from langgraph.graph import END, START
from pydantic import JsonValue

from interlock.graphs import _decide, _execute
from interlock.graphs._pipeline import Graph, Pipeline
from interlock.nodes.tools_batch import collect, each_call, each_of_group, next_group, parse
from interlock.nodes.tools_results import as_sent, recorded_of
from interlock.state.subagent import MAX_DEPTH
from interlock.state.tools import ToolsInput, ToolsOutput, ToolsState, outcomes_of
from interlock.state.workflow import WorkflowContext, append_history, to_message


def build(depth: int = MAX_DEPTH) -> Graph:
    """`depth`: levels of sub-agents that its calls may start."""
    g = Graph("tools", ToolsState)
    g.node("parse", parse)
    g.part("decide", _decide.build)
    g.node("next_group", next_group)
    g.part("execute", lambda: _execute.build(depth))
    g.node("collect", collect)

    g.edge(START, "parse")
    g.fan_out("parse", each_call, "decide", otherwise="next_group")
    g.edge("decide", "next_group")
    # Results are found in the journal by their call, whichever task asks.
    g.fan_out("next_group", each_of_group, "execute", otherwise="collect", one_inline=True)
    g.edge("execute", "collect")
    g.by_label("collect", {"groups left": "next_group", "done": END})
    return g


def enter(given: ToolsInput, context: WorkflowContext) -> dict[str, Any]:
    head = append_history(context.transcript, given.history)
    calls: list[dict[str, JsonValue]] = []
    for index, call in enumerate(given.calls):
        calls.append({"id": call.get("id") or f"0.{index}", **{k: v for k, v in call.items() if k != "id"}})
    message = to_message("calls", {"role": "assistant", "content": given.text, "tool_calls": calls})
    return {"head": context.transcript.append(head, [message]), "approval_mode": context.approval_mode}


def leave(values: Mapping[str, Any], context: WorkflowContext) -> ToolsOutput:
    """One response for each call, in the calls' order."""
    outcomes = outcomes_of(cast(ToolsState, values))
    responses: list[dict[str, Any]] = []
    for index in range(values["count"]):
        call, result = recorded_of(context.journal, values["message"], index, outcomes[index])
        sent = as_sent(context.transcript, outcomes[index].get("record", ""), result)
        told = sent.model_dump(mode="json", exclude_none=True, exclude={"stop"})
        responses.append({"id": call.id, "name": call.name, **told})
    return ToolsOutput(responses=responses, stop=values.get("stop") or None)


PIPELINE = Pipeline("tools", build, ToolsInput, ToolsOutput, enter=enter, leave=leave, outcome="ended")
