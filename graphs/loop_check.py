"""loop_check: detects whether the run repeats itself: compares calls and text, and occasionally asks models.

Level 1 is `scan_calls`, level 2 `scan_text`; level 3 is a model's judgement, where one is due. In a run, calls and text
are watched while they stream; the scans take what was found, and then no model is asked. Standalone, `check_due` loops
with the models until the end of the events.
"""

from collections.abc import Mapping
from typing import Any

from langgraph.graph import END, START

from interlock.graphs.graph import Graph
from interlock.graphs.pipeline import Pipeline
from interlock.nodes.loop_check import (
    EVENTS,
    ask_model,
    check_due,
    double_check,
    replay_loop_events,
    scan_calls,
    scan_text,
)
from interlock.state.loop_check import LoopCheckInput, LoopCheckOutput, LoopCheckState
from interlock.state.messages import Message
from interlock.state.text import replace_surrogates
from interlock.state.workflow import WorkflowContext, start_chain_from_history


def build() -> Graph:
    g = Graph("loop-check", LoopCheckState)
    g.nodes(scan_calls, scan_text, check_due, ask_model, double_check)

    g.edge(START, "scan_calls")
    g.by_label("scan_calls", {"none": "scan_text", "loop": END})
    g.by_label("scan_text", {"none": "check_due", "loop": END})
    g.by_label("check_due", {"look due": "ask_model", "loop": END, "none": END})
    g.by_label("ask_model", {"suspicious": "double_check", "judged": "check_due"})
    g.edge("double_check", "check_due")
    g.together(START, "scan_calls", "scan_text")
    return g


def initial_state(input: LoopCheckInput, context: WorkflowContext) -> dict[str, Any]:
    """Store the events as a chain record; the state holds its id."""
    events = Message(
        role="user",
        origin="context",
        content=replace_surrogates(EVENTS.dump_json(input.events, exclude_unset=True).decode()),
    )
    return {
        "head": start_chain_from_history(context.transcript, input.history) if input.history else "",
        "events": context.transcript.append("", [events]),
        "asks": input.history is not None,
    }


def build_output(values: Mapping[str, Any], context: WorkflowContext) -> LoopCheckOutput:
    """Recompute the verdicts: there can be thousands, too many for the state."""
    events = EVENTS.validate_json(context.transcript.read_message(values["events"]).text)
    asks = values["asks"] and not values["off"]
    found = replay_loop_events(events, values.get("judgements", []), asks, values["limit"], values["off"])
    return LoopCheckOutput(
        detected=found.at_event is not None,
        kind=found.kind,
        detail=found.detail,
        at_event=found.at_event,
        count=found.count,
        interval=found.interval,
        next_check_turn=found.next_check,
        verdicts=found.verdicts,
    )


PIPELINE = Pipeline(
    "loop-check", build, LoopCheckInput, LoopCheckOutput, enter=initial_state, leave=build_output
)
