"""summarize: a long tool output is kept in a file, and its model gets a summary or its two ends.

Only a cancelled request loops, when the run is resumed. A short output, a good summary or truncation ends it.
"""

from langgraph.graph import END, START

from interlock.graphs._pipeline import Graph, Pipeline
from interlock.nodes.summarize import (
    after_check_summary,
    after_measure,
    after_save,
    after_summarize,
    check_summary,
    measure,
    save,
    summarize,
    truncate,
)
from interlock.state.summarize import SummarizeInput, SummarizeOutput, SummarizeState


def build() -> Graph:
    g = Graph("summarize", SummarizeState)
    g.node("measure", measure)
    g.node("save", save)
    g.node("summarize", summarize)
    g.node("check_summary", check_summary)
    g.node("truncate", truncate)

    g.edge(START, "measure")
    g.route("measure", after_measure, {"long": "save", "short": END})
    g.route("save", after_save, {"summarize": "summarize", "truncate": "truncate"})
    g.route("summarize", after_summarize, {"answered or failed": "check_summary", "cancelled": "summarize"})
    g.route("check_summary", after_check_summary, {"good": END, "failed": "truncate"})
    g.edge("truncate", END)
    return g


PIPELINE = Pipeline("summarize", build, SummarizeInput, SummarizeOutput, prompt_field="text")
