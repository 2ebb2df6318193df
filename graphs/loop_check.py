"""loop_check: does the run repeat itself? Calls and text are compared; now and then models are asked.

`scan` loops with the models until nothing is due; the end of the events, or of the one turn in a run, ends it.
"""

from langgraph.graph import END, START

from interlock.graphs._pipeline import Graph, Pipeline
from interlock.nodes.loop_check import after_ask_model, after_scan, ask_model, double_check, scan
from interlock.state.loop_check import LoopCheckInput, LoopCheckOutput, LoopCheckState


def build() -> Graph:
    g = Graph("loop-check", LoopCheckState)
    g.node("scan", scan)
    g.node("ask_model", ask_model)
    g.node("double_check", double_check)

    g.edge(START, "scan")
    g.route("scan", after_scan, {"look due": "ask_model", "over": END})
    g.route("ask_model", after_ask_model, {"suspicious": "double_check", "judged": "scan"})
    g.edge("double_check", "scan")
    return g


PIPELINE = Pipeline("loop-check", build, LoopCheckInput, LoopCheckOutput)
