"""turn: one model turn, from the limit checks to an answer that may enter the conversation.

`wait_retry` leads back to `call_model`: at most 4 times while its stream is invalid, at most 10 while its connection
fails; then, once, `route` with another model. What is too long is compressed once, then `fit_window` leaves out
outputs while there are any. A limit, an overflow, a loop, an error, a hook or an answer ends it. Hook nodes are skipped
if no hooks are set.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any

from langgraph.graph import END, START

from interlock.graphs import nested_graph_builder
from interlock.graphs.graph import Graph
from interlock.graphs.hook_nodes import add_hooks
from interlock.graphs.pipeline import Pipeline
from interlock.nodes.context import ide_context
from interlock.nodes.turn_messages import mask_tool_outputs
from interlock.nodes.turn_reply import after_model, call_model, check_stream, note_loop, wait_retry
from interlock.nodes.turn_request import (
    before_model,
    before_tool_selection,
    check_context,
    check_limits,
    fit_window,
    route_after_loop_check,
    use_model,
)
from interlock.state.messages import Message
from interlock.state.turn import TurnDone, TurnInput, TurnOutput, TurnState
from interlock.state.workflow import (
    WorkflowContext,
    error_from_state,
    parse_input_message,
    read_history,
    start_chain_from_history,
)


@cache
def build() -> Graph:
    g = Graph("turn", TurnState, output=TurnDone, renamed={"note_undone": "mask_tool_outputs"})
    g.node("check_limits", check_limits)
    g.subgraph("compress", nested_graph_builder("compress"))
    g.subgraph("loop-check", nested_graph_builder("loop-check"))
    g.subgraph("route", nested_graph_builder("route"))
    g.nodes(mask_tool_outputs, ide_context, check_context, fit_window, use_model)
    g.nodes(call_model, check_stream, wait_retry, note_loop)
    asked = {"ask": "call_model", "stopped": END, "blocked": END}
    choices = {"choose tools": "before_tool_selection", "answered": END}
    add_hooks(
        g,
        {
            "BeforeModel": (before_model, {**asked, **choices}),
            "BeforeToolSelection": (before_tool_selection, asked),
            "AfterModel": (after_model, dict.fromkeys(("answered", "calls", "stopped", "blocked"), END)),
        },
    )

    g.edge(START, "check_limits")
    limits = {"prompt limit": END, "session limit": END}
    g.by_label("check_limits", {"short": "mask_tool_outputs", "long": "compress", **limits})
    g.edge("compress", "mask_tool_outputs")
    g.by_label("mask_tool_outputs", {"plain": "check_context", "ide": "ide_context"})
    g.edge("ide_context", "check_context")
    routed = {"unrouted": "route", "sticky": "call_model", "hooked": "before_model"}
    g.by_label("check_context", {**routed, "look due": "loop-check", "overflow": "fit_window"})
    g.by_label("fit_window", {"shortened": "check_context", "full": END})
    loops = dict.fromkeys(("calls repeat", "text repeats", "no progress"), "note_loop")
    g.route("loop-check", route_after_loop_check, {**routed, **loops})
    g.edge("route", "use_model")
    g.by_label("use_model", {"usable": "call_model", "hooked": "before_model", "none left": END})
    g.edge("call_model", "check_stream")
    tried = {"retry": "wait_retry", "unavailable": "route"}
    tried |= {"too long": "compress", "still too long": "fit_window"}
    g.by_label("wait_retry", {"again": "call_model", "another model": "route", "too long": END})
    ends = dict.fromkeys(("answered", "calls", "error", "invalid"), END)
    g.by_label("check_stream", {**tried, "loop": "loop-check", "whole": "after_model", **ends})
    g.by_label("note_loop", {"first loop": END, "second loop": END})
    g.together(START, "check_limits", "mask_tool_outputs", "ide_context", "check_context")
    g.together("call_model", "check_stream")
    return g


def initial_state(input: TurnInput, context: WorkflowContext) -> dict[str, Any]:
    head = start_chain_from_history(context.transcript, input.history)
    request = parse_input_message("request", {"role": "user", "origin": "person", "content": input.request})
    return {
        "head": context.transcript.append(head, [request]),
        "ide_given": context.record_ide_input(input.ide),
        "model": context.model,
        "approval_mode": context.approval_mode,
        "max_turns": context.limits.max_turns,
        "max_session_turns": context.limits.max_session_turns,
        "turn_no": input.turn_no - 1,
        "session_turns": input.session_turns,
        "sticky_model": input.sticky_model or "",
        "last_prompt_tokens": input.last_prompt_tokens,
    }


def build_output(values: Mapping[str, Any], context: WorkflowContext) -> TurnOutput:
    reply = values.get("reply")
    message = context.transcript.read_message(reply) if reply else Message(role="assistant")
    return TurnOutput(
        status=values["turn_status"],
        text=message.text,
        tool_calls=[c.model_dump(mode="json", exclude_none=True) for c in message.tool_calls],
        finish_reason=values.get("finish_reason") or None,
        model=values.get("sticky_model") or values["model"],
        usage=context.usage(reply).model_dump(exclude={"usd"}) if reply else {},
        history=read_history(context.transcript, values["head"]),
        error=error_from_state(values),
    )


PIPELINE = Pipeline(
    "turn",
    build,
    TurnInput,
    TurnOutput,
    prompt_field="request",
    needs_model=True,
    enter=initial_state,
    leave=build_output,
    outcome="turn_status",
)
