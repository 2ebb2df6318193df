"""route: which model answers. Strategies are asked in order, each can abstain; nothing loops, a verdict ends it."""

from langgraph.graph import END, START

from interlock.graphs._pipeline import Graph, Pipeline
from interlock.nodes.route.approval_mode import approval_mode
from interlock.nodes.route.classifier import classifier
from interlock.nodes.route.default import default
from interlock.nodes.route.fallback import fallback
from interlock.nodes.route.numerical import numerical
from interlock.nodes.route.override import override
from interlock.nodes.route.routes import after_strategy
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
