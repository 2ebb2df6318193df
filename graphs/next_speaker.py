"""next_speaker: must the model go on, or is it the user's turn? Nothing loops; the first that decides ends it."""

from langgraph.graph import END, START

from interlock.graphs._pipeline import Graph, Pipeline
from interlock.nodes.next_speaker import after_precheck, ask_model, precheck
from interlock.state.next_speaker import NextSpeakerInput, NextSpeakerOutput, NextSpeakerState


def build() -> Graph:
    g = Graph("next-speaker", NextSpeakerState)
    g.node("precheck", precheck)
    g.node("ask_model", ask_model)

    g.edge(START, "precheck")
    g.route("precheck", after_precheck, {"decided": END, "open": "ask_model"})
    g.edge("ask_model", END)
    return g


PIPELINE = Pipeline("next-speaker", build, NextSpeakerInput, NextSpeakerOutput)
