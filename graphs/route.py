"""route: chooses the model. Strategies are tried in order, and each can abstain; nothing loops, a verdict ends it."""

from collections.abc import Mapping
from typing import Any

from langgraph.graph import END, START

from interlock.graphs.graph import Graph
from interlock.graphs.pipeline import Pipeline
from interlock.nodes.route import approval_mode, classifier, default, fallback, numerical, override
from interlock.state.route import AUTO, EXCLUDED, RouteInput, RouteOutput, RouteState
from interlock.state.workflow import WorkflowContext, parse_input_message, start_chain_from_history


def build() -> Graph:
    g = Graph("route", RouteState)
    g.nodes(fallback, override, approval_mode, classifier, numerical, default)

    g.edge(START, "fallback")
    g.by_label("fallback", {"abstained": "override", "chosen": END})
    g.by_label("override", {"abstained": "approval_mode", "chosen": END})
    g.by_label("approval_mode", {"abstained": "classifier", "flash": END, "pro": END})
    g.by_label("classifier", {"abstained": "numerical", "flash": END, "pro": END})
    g.by_label("numerical", {"abstained": "default", "flash": END, "pro": END})
    g.edge("default", END)
    return g


def initial_state(input: RouteInput, context: WorkflowContext) -> dict[str, Any]:
    """Default `requested_model` to the run's model, unless that is a script, which only plays the helpers."""
    asked = input.requested_model
    if "requested_model" not in input.model_fields_set and not context.model.startswith("script:"):
        asked = context.model
    request = parse_input_message("request", {"role": "user", "origin": "person", "content": input.request})
    return {
        "head": context.transcript.append(
            start_chain_from_history(context.transcript, input.history), [request]
        ),
        "model": asked or AUTO,
        "approval_mode": context.approval_mode,
        "approved_plan": input.approved_plan,
        "unavailable": dict.fromkeys(input.unavailable, EXCLUDED),
    }


def build_output(values: Mapping[str, Any], context: WorkflowContext) -> RouteOutput:  # noqa: ARG001 - every `leave` has this shape
    return RouteOutput(
        model=values["chosen_model"],
        strategy=values["strategy"],
        reasoning=values["route_reason"],
        latency_ms=values["route_ms"],
    )


PIPELINE = Pipeline(
    "route", build, RouteInput, RouteOutput, prompt_field="request", enter=initial_state, leave=build_output
)
