"""turn: one model turn, from its limits to an answer that may enter the conversation.

`call_model` loops while its stream is invalid, at most 4 times; a limit, an overflow, an error or an answer ends it.
"""

from langgraph.graph import END, START

from interlock.graphs._pipeline import Graph, Pipeline
from interlock.nodes.turn.call_model import call_model
from interlock.nodes.turn.check_context import check_context
from interlock.nodes.turn.check_limits import check_limits
from interlock.nodes.turn.check_stream import check_stream
from interlock.nodes.turn.routes import after_check_context, after_check_limits, after_check_stream
from interlock.state.turn import TurnInput, TurnOutput, TurnState


def build() -> Graph:
    g = Graph("turn", TurnState)
    g.node("check_limits", check_limits)
    g.node("check_context", check_context)
    g.node("call_model", call_model)
    g.node("check_stream", check_stream)

    g.edge(START, "check_limits")
    g.route("check_limits", after_check_limits, {"ok": "check_context", "limit": END})
    g.route("check_context", after_check_context, {"fits": "call_model", "overflow": END})
    g.edge("call_model", "check_stream")
    g.route("check_stream", after_check_stream, {"again": "call_model", "end": END})
    return g


PIPELINE = Pipeline("turn", build, TurnInput, TurnOutput, prompt_field="request", needs_model=True)
