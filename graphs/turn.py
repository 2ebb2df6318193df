"""turn: one model turn, from its limits to an answer that may enter the conversation.

`call_model` loops while its stream is invalid, at most 4 times, and comes back once by `route` with another model; a
limit, an overflow, a loop, an error, a hook or an answer ends it. Hooks are passed by where none are set.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any

from langgraph.graph import END, START

from interlock.graphs import compress, loop_check, route
from interlock.graphs._pipeline import Graph, Pipeline
from interlock.nodes.hooks import ask_hook, await_person
from interlock.nodes.turn_messages import mask_tool_outputs
from interlock.nodes.turn_reply import after_model, call_model, check_stream, note_loop
from interlock.nodes.turn_request import (
    after_after_model,
    after_await_hook,
    after_before_model,
    after_before_tool_selection,
    after_check_context,
    after_check_limits,
    after_check_stream,
    after_loop_check,
    after_use_model,
    before_model,
    before_tool_selection,
    check_context,
    check_limits,
    use_model,
)
from interlock.state.messages import Message
from interlock.state.turn import TurnDone, TurnInput, TurnOutput, TurnState
from interlock.state.workflow import WorkflowContext, append_history, error_of, read_history, to_message

_ASKING = {"sticky": "call_model", "hooked": "before_model"}
_HOOKED = {"ask": "call_model", "ended": END, "unknown": "ask_hook"}
_STREAM = {
    "again": "call_model",
    "unavailable": "route",
    "loop": "note_loop",
    "whole": "after_model",
    "end": END,
}


@cache
def build() -> Graph:
    g = Graph("turn", TurnState, output=TurnDone)
    _nodes(g)

    g.edge(START, "check_limits")
    g.route(
        "check_limits", after_check_limits, {"short": "mask_tool_outputs", "long": "compress", "limit": END}
    )
    g.edge("compress", "mask_tool_outputs")
    g.edge("mask_tool_outputs", "check_context")
    g.route(
        "check_context",
        after_check_context,
        {"overflow": END, "look due": "loop-check", "unrouted": "route", **_ASKING},
    )
    g.route("loop-check", after_loop_check, {"loop": "note_loop", "unrouted": "route", **_ASKING})
    g.edge("route", "use_model")
    g.route(
        "use_model",
        after_use_model,
        {"usable": "call_model", "hooked": "before_model", "none left": END},
    )
    g.route("before_model", after_before_model, {"choose tools": "before_tool_selection", **_HOOKED})
    g.route("before_tool_selection", after_before_tool_selection, _HOOKED)
    g.edge("call_model", "check_stream")
    g.route("check_stream", after_check_stream, _STREAM)
    g.route("after_model", after_after_model, {"end": END, "unknown": "ask_hook"})
    g.edge("note_loop", END)
    g.edge("ask_hook", "await_hook")
    events = {"BeforeModel": "before_model", "BeforeToolSelection": "before_tool_selection"}
    g.route("await_hook", after_await_hook, {**events, "AfterModel": "after_model"})
    return g


def _nodes(g: Graph) -> None:
    g.node("check_limits", check_limits)
    g.part("compress", compress.build())
    g.node("mask_tool_outputs", mask_tool_outputs)
    g.node("check_context", check_context)
    g.part("loop-check", loop_check.build())
    g.part("route", route.build())
    g.node("use_model", use_model)
    g.node("before_model", before_model)
    g.node("before_tool_selection", before_tool_selection)
    g.node("call_model", call_model)
    g.node("check_stream", check_stream)
    g.node("after_model", after_model)
    g.node("note_loop", note_loop)
    g.node("ask_hook", ask_hook)
    g.node("await_hook", await_person)


def enter(given: TurnInput, context: WorkflowContext) -> dict[str, Any]:
    head = append_history(context.transcript, given.history)
    request = to_message("request", {"role": "user", "origin": "person", "content": given.request})
    return {
        "head": context.transcript.append(head, [request]),
        "model": context.model,
        "approval_mode": context.approval_mode,
        "max_turns": context.limits.max_turns,
        "max_session_turns": context.limits.max_session_turns,
        "turn_no": given.turn_no - 1,
        "session_turns": given.session_turns,
        "sticky_model": given.sticky_model or "",
        "last_prompt_tokens": given.last_prompt_tokens,
    }


def leave(values: Mapping[str, Any], context: WorkflowContext) -> TurnOutput:
    reply = values.get("reply")
    message = context.transcript.message(reply) if reply else Message(role="assistant")
    return TurnOutput(
        status=values["turn_status"],
        text=message.text,
        tool_calls=[c.model_dump(mode="json", exclude_none=True) for c in message.tool_calls],
        finish_reason=values.get("finish_reason") or None,
        model=values.get("sticky_model") or context.model,
        usage=context.usage(reply).model_dump() if reply else {},
        history=read_history(context.transcript, values["head"]),
        error=error_of(values),
    )


PIPELINE = Pipeline(
    "turn",
    build,
    TurnInput,
    TurnOutput,
    prompt_field="request",
    needs_model=True,
    enter=enter,
    leave=leave,
    outcome="turn_status",
)
