"""init: examines the repository and writes or improves its memory file, with an approval as for any write.

`turn` and `tools` alternate, in a mode that reads and writes Markdown; a model that stops before the file is written is
reminded. An answer, a limit, an error, a second loop or a batch that says stop ends it.
"""

from collections.abc import Mapping
from typing import Any

from langgraph.graph import END, START

from interlock.graphs import nested_graph_builder
from interlock.graphs.graph import Graph
from interlock.graphs.pipeline import Pipeline
from interlock.nodes.init import check_file, finish, open_init, route_after_turn
from interlock.nodes.main import TURN_ENDS, nudge, route_after_tools
from interlock.state.init import InitInput, InitOutput, InitState
from interlock.state.subagent import MAX_DEPTH
from interlock.state.workflow import WorkflowContext, error_from_state


def build(depth: int = MAX_DEPTH) -> Graph:
    """`depth`: levels of sub-agents below it."""
    g = Graph("init", InitState)
    g.node("open_init", open_init)
    g.subgraph("context", nested_graph_builder("context"))
    g.subgraph("turn", nested_graph_builder("turn"))
    g.subgraph("tools", nested_graph_builder("tools", depth))
    g.nodes(nudge, check_file, finish)

    g.edge(START, "open_init")
    g.by_label("open_init", {"look": "context", "nothing here": "finish"})
    g.edge("context", "turn")
    ended = {"first loop": "nudge", **dict.fromkeys(TURN_ENDS, "finish")}
    g.route("turn", route_after_turn, {"calls": "tools", "no calls": "check_file", **ended})
    g.route("tools", route_after_tools, {"results": "turn", "stop": "finish"})
    g.by_label("check_file", {"over": "finish", "once more": "turn"})
    g.edge("nudge", "turn")
    g.edge("finish", END)
    return g


def initial_state(input: InitInput, context: WorkflowContext) -> dict[str, Any]:
    return {
        "prompt": context.record_prompt(input.hint) if input.hint else "",
        "file": input.file or "",
        "approval_mode": context.approval_mode,
        "model": context.model,
        "max_turns": context.limits.max_turns,
        "max_session_turns": context.limits.max_session_turns,
    }


def build_output(values: Mapping[str, Any], context: WorkflowContext) -> InitOutput:
    answered = values["status"] in ("done", "unchanged") and values.get("reply")
    return InitOutput(
        status=values["status"],
        file=values["file"],
        response=context.transcript.read_message(values["reply"]).text if answered else "",
        error=error_from_state(values),
    )


PIPELINE = Pipeline(
    "init",
    build,
    InitInput,
    InitOutput,
    prompt_field="hint",
    needs_model=True,
    enter=initial_state,
    leave=build_output,
)
