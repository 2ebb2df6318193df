"""tools: one batch of calls. Every call is decided first, all side by side; then they are executed, group by group.

`next_group` and `collect` loop until no group is left; the last `collect` answers every call and ends the batch.
"""

from langgraph.graph import END, START

from interlock.graphs import _decide, _execute
from interlock.graphs._pipeline import Graph, Pipeline
from interlock.nodes.tools_batch import after_collect, collect, each_call, each_of_group, next_group, parse
from interlock.state.subagent import MAX_DEPTH
from interlock.state.tools import ToolsInput, ToolsOutput, ToolsState


def build(depth: int = MAX_DEPTH) -> Graph:
    """`depth`: levels of sub-agents that its calls may start."""
    g = Graph("tools", ToolsState)
    g.node("parse", parse)
    g.part("decide", _decide.build())
    g.node("next_group", next_group)
    g.part("execute", _execute.build(depth))
    g.node("collect", collect)

    g.edge(START, "parse")
    g.fan_out("parse", each_call, "decide")
    g.edge("decide", "next_group")
    g.fan_out("next_group", each_of_group, "execute", otherwise="collect")
    g.edge("execute", "collect")
    g.route("collect", after_collect, {"groups left": "next_group", "done": END})
    return g


PIPELINE = Pipeline("tools", build, ToolsInput, ToolsOutput)
