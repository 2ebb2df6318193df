"""next_speaker: decides if the model goes on or it is the user's turn. Nothing loops; the first verdict ends it."""

from collections.abc import Mapping
from typing import Any

from langgraph.graph import END, START

from interlock.graphs.graph import Graph
from interlock.graphs.pipeline import Pipeline
from interlock.nodes.next_speaker import ask_model, precheck
from interlock.state.next_speaker import NextSpeakerInput, NextSpeakerOutput, NextSpeakerState
from interlock.state.workflow import WorkflowContext, start_chain_from_history


def build() -> Graph:
    g = Graph("next-speaker", NextSpeakerState)
    g.nodes(precheck, ask_model)

    g.edge(START, "precheck")
    g.by_label("precheck", {"decided": END, "open": "ask_model"})
    g.edge("ask_model", END)
    return g


def initial_state(input: NextSpeakerInput, context: WorkflowContext) -> dict[str, Any]:
    return {"head": start_chain_from_history(context.transcript, input.history)}


def build_output(values: Mapping[str, Any], context: WorkflowContext) -> NextSpeakerOutput:  # noqa: ARG001 - every `leave` has this shape
    return NextSpeakerOutput(
        next_speaker=values["next_speaker"] or None,
        reasoning=values["speaker_reason"],
        decided_by=values["decided_by"],
    )


PIPELINE = Pipeline(
    "next-speaker", build, NextSpeakerInput, NextSpeakerOutput, enter=initial_state, leave=build_output
)
