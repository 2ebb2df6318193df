"""route: which model answers. Strategies are asked in order, each can abstain; nothing loops, a verdict ends it."""

from langgraph.graph import END, START

from interlock.graphs._pipeline import Graph, Pipeline
from interlock.nodes.route import (
    after_strategy,
    approval_mode,
    classifier,
    default,
    fallback,
    numerical,
    override,
)
from interlock.state.route import RouteInput, RouteOutput, RouteState


def build() -> Graph:
    g = Graph("route", RouteState)
    g.node("fallback", fallback)
    g.node("override", override)
    g.node("approval_mode", approval_mode)
    g.node("classifier", classifier)
    g.node("numerical", numerical)
    g.node("default", default)

    g.edge(START, "fallback")
    g.route("fallback", after_strategy, {"chosen": END, "abstained": "override"})
    g.route("override", after_strategy, {"chosen": END, "abstained": "approval_mode"})
    g.route("approval_mode", after_strategy, {"chosen": END, "abstained": "classifier"})
    g.route("classifier", after_strategy, {"chosen": END, "abstained": "numerical"})
    g.route("numerical", after_strategy, {"chosen": END, "abstained": "default"})
    g.edge("default", END)
    return g


PIPELINE = Pipeline("route", build, RouteInput, RouteOutput, prompt_field="request")
