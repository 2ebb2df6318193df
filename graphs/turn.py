"""turn: one model turn, from its limits to an answer that may enter the conversation.

`call_model` loops while its stream is invalid, at most 4 times, and comes back once by `route` with another model; a
limit, an overflow, a loop, an error or an answer ends it.
"""

from functools import cache

from langgraph.graph import END, START

from interlock.graphs import compress, loop_check, route
from interlock.graphs._pipeline import Graph, Pipeline
from interlock.nodes.turn.call_model import call_model
from interlock.nodes.turn.check_context import check_context
from interlock.nodes.turn.check_limits import check_limits
from interlock.nodes.turn.check_stream import check_stream
from interlock.nodes.turn.mask_tool_outputs import mask_tool_outputs
from interlock.nodes.turn.note_loop import note_loop
from interlock.nodes.turn.routes import (
    after_check_context,
    after_check_limits,
    after_check_stream,
    after_loop_check,
    after_use_model,
)
from interlock.nodes.turn.use_model import use_model
from interlock.state.turn import TurnDone, TurnInput, TurnOutput, TurnState


@cache
def build() -> Graph:
    g = Graph("turn", TurnState, output=TurnDone)
    g.node("check_limits", check_limits)
    g.part("compress", compress.build())
    g.node("mask_tool_outputs", mask_tool_outputs)
    g.node("check_context", check_context)
    g.part("loop-check", loop_check.build())
    g.part("route", route.build())
    g.node("use_model", use_model)
    g.node("call_model", call_model)
    g.node("check_stream", check_stream)
    g.node("note_loop", note_loop)

    g.edge(START, "check_limits")
    g.route(
        "check_limits", after_check_limits, {"short": "mask_tool_outputs", "long": "compress", "limit": END}
    )
    g.edge("compress", "mask_tool_outputs")
    g.edge("mask_tool_outputs", "check_context")
    g.route(
        "check_context",
        after_check_context,
        {"overflow": END, "look due": "loop-check", "sticky": "call_model", "unrouted": "route"},
    )
    g.route(
        "loop-check", after_loop_check, {"loop": "note_loop", "sticky": "call_model", "unrouted": "route"}
    )
    g.edge("route", "use_model")
    g.route("use_model", after_use_model, {"usable": "call_model", "none left": END})
    g.edge("call_model", "check_stream")
    g.route(
        "check_stream",
        after_check_stream,
        {"again": "call_model", "unavailable": "route", "loop": "note_loop", "end": END},
    )
    g.edge("note_loop", END)
    return g


PIPELINE = Pipeline("turn", build, TurnInput, TurnOutput, prompt_field="request", needs_model=True)
