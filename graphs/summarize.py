"""summarize: saves a long tool output to a file, and gives its model a summary or its beginning and end.

Nothing loops. A short output, a good summary or truncation ends it.
"""

from collections.abc import Mapping
from typing import Any, cast

from langgraph.graph import END, START

from interlock.graphs.graph import Graph
from interlock.graphs.pipeline import Pipeline
from interlock.nodes.summarize import check_summary, measure, save, summarize, truncate
from interlock.state.messages import Message
from interlock.state.summarize import SummarizeInput, SummarizeOutput, SummarizeState, SummarizeStatus
from interlock.state.text import replace_surrogates
from interlock.state.workflow import WorkflowContext, start_chain_from_history


def build() -> Graph:
    g = Graph("summarize", SummarizeState)
    g.nodes(measure, save, summarize, check_summary, truncate)

    g.edge(START, "measure")
    g.by_label("measure", {"long": "save", "short": END})
    g.by_label("save", {"summarize": "summarize", "truncate": "truncate"})
    g.edge("summarize", "check_summary")
    g.by_label("check_summary", {"good": END, "failed": "truncate"})
    g.edge("truncate", END)
    return g


def initial_state(input: SummarizeInput, context: WorkflowContext) -> dict[str, Any]:
    text = Message(role="tool", name=replace_surrogates(input.tool), content=replace_surrogates(input.text))
    return {
        "tool": replace_surrogates(input.tool),
        "source": context.transcript.append("", [text]),
        "head": start_chain_from_history(context.transcript, input.history),
        "max_output_tokens": input.max_output_tokens,
    }


def build_output(values: Mapping[str, Any], context: WorkflowContext) -> SummarizeOutput:
    return SummarizeOutput(
        text=context.transcript.read_message(values.get("shortened") or values["source"]).text,
        status=cast(SummarizeStatus, values["summarize_status"]),
        saved_to=values["saved_to"] or None,
    )


PIPELINE = Pipeline(
    "summarize",
    build,
    SummarizeInput,
    SummarizeOutput,
    prompt_field="text",
    enter=initial_state,
    leave=build_output,
)
