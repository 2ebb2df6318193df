"""tools: one batch of calls. All calls are decided first, in parallel; then they are executed, group by group.

Rule: `docs/internals.md#decide-then-execute`.

`next_group` and `collect` loop until no group is left; the last `collect` answers every call and ends the batch.
`decide` takes one call from its name to `ready`, or to an answer without execution; `execute` takes one allowed call to
its result in the journal.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any, cast

from langgraph.graph import END, START
from pydantic import JsonValue

from interlock.graphs import nested_graph_builder
from interlock.graphs.graph import Graph
from interlock.graphs.hook_nodes import add_hooks
from interlock.graphs.pipeline import Pipeline
from interlock.nodes.requests import await_person, notify
from interlock.nodes.tools_approval import apply_decision, ready, request_approval
from interlock.nodes.tools_batch import (
    cancel_rest,
    collect,
    has_effectful_group,
    make_decide_sends,
    make_execute_sends,
    next_group,
    parse_batch_outcomes,
)
from interlock.nodes.tools_decide import (
    before_tool,
    check_mode,
    check_policy,
    normalize_call_argument_names,
    parse,
    parse_xml,
    resolve,
    respond_undone,
    route_by_protocol,
    take_edit,
    validate,
)
from interlock.nodes.tools_execute import (
    after_tool,
    respond,
    route_after_subagent,
    route_by_call_kind,
    run_tool,
)
from interlock.nodes.tools_questions import (
    apply_outcome,
    ask_input,
    ask_outcome,
    ask_question,
    ask_review,
    route_by_asker,
    take_answer,
    take_input,
    take_review,
)
from interlock.nodes.tools_results import load_call_and_result, result_for_model
from interlock.state.subagent import MAX_DEPTH
from interlock.state.tools import (
    DecideOut,
    DecideSend,
    DecideState,
    ExecuteOut,
    ExecuteSend,
    ExecuteState,
    ToolsInput,
    ToolsOutput,
    ToolsState,
)
from interlock.state.workflow import WorkflowContext, parse_input_message, start_chain_from_history


def build(depth: int = MAX_DEPTH) -> Graph:
    """`depth`: levels of sub-agents that its calls may start."""
    g = Graph("tools", ToolsState, renamed={"parse_json": "parse"})
    g.nodes(parse, parse_xml)
    g.subgraph("decide", _build_decide_graph)
    g.node("next_group", next_group)
    g.subgraph("execute", lambda: _build_execute_graph(depth))
    g.nodes(collect, cancel_rest)

    g.route(START, route_by_protocol, {"native": "parse", "json": "parse", "xml": "parse_xml"})
    g.edge("parse_xml", "parse")
    g.fan_out("parse", make_decide_sends, "decide", otherwise="next_group")
    g.edge("decide", "next_group")
    g.fan_out("next_group", make_execute_sends, "execute", otherwise="collect", apart=has_effectful_group)
    g.edge("execute", "collect")
    g.edge("cancel_rest", "collect")
    g.by_label("collect", {"groups left": "next_group", "cancelled": "cancel_rest", "done": END})
    # Results are found in the journal by call, whichever task asks.
    g.together(START, "parse_xml", "parse", "decide", "next_group", "execute", "collect")
    return g


def initial_state(input: ToolsInput, context: WorkflowContext) -> dict[str, Any]:
    head = start_chain_from_history(context.transcript, input.history)
    calls: list[dict[str, JsonValue]] = []
    for index, call in enumerate(input.calls):
        calls.append({"id": call.get("id") or f"0.{index}", **{k: v for k, v in call.items() if k != "id"}})
    message = parse_input_message("calls", {"role": "assistant", "content": input.text, "tool_calls": calls})
    named = context.transcript.append(head, [normalize_call_argument_names(message)])
    return {"head": named, "approval_mode": context.approval_mode}


def build_output(values: Mapping[str, Any], context: WorkflowContext) -> ToolsOutput:
    """One response per call, in call order."""
    outcomes = parse_batch_outcomes(cast(ToolsState, values))
    responses: list[dict[str, Any]] = []
    for index in range(values["count"]):
        call, result = load_call_and_result(context.journal, values["message"], index, outcomes[index])
        sent = result_for_model(context.transcript, outcomes[index].get("record", ""), result)
        fields = sent.model_dump(mode="json", exclude_none=True, exclude={"stop"})
        responses.append({"id": call.id, "name": call.name, **fields})
    return ToolsOutput(responses=responses, stop=values.get("stop") or None)


PIPELINE = Pipeline(
    "tools", build, ToolsInput, ToolsOutput, enter=initial_state, leave=build_output, outcome="ended"
)


def _build_execute_graph(depth: int = 0) -> Graph:
    """`depth`: levels of sub-agents below this call; at 0, a call that requests one is answered with an error."""
    g = Graph("execute", ExecuteState, input=ExecuteSend, output=ExecuteOut)
    _add_execution_nodes(g, depth)
    add_hooks(g, {"AfterTool": (after_tool, {"done": "respond", "long output": "summarize"})})

    agent = "subagent" if depth > 0 else "run_tool"
    kinds = {"tool": "run_tool", "question": "ask_question", "agent": agent, "review": "ask_review"}
    g.route(START, route_by_call_kind, kinds)
    result = {"done": "respond", "hooks": "after_tool"}
    asks = {"unknown outcome": "ask_outcome", "input wanted": "ask_input"}
    g.by_label("run_tool", {**result, "long output": "summarize", **asks})
    if depth > 0:
        g.route("subagent", route_after_subagent, result)
    g.by_label("ask_outcome", {"asked": "await_outcome", "notify": "notify"})
    g.edge("await_outcome", "apply_outcome")
    g.by_label("apply_outcome", {"redo": "run_tool", "skip": "respond"})
    g.by_label("ask_question", {"asked": "await_answer", "notify": "notify"})
    g.by_label("ask_input", {"asked": "await_answer", "notify": "notify"})
    g.route("await_answer", route_by_asker, {"model": "take_answer", "server": "take_input"})
    g.by_label("take_input", {"given": "run_tool", "unfit": "ask_input", "rejected": "respond"})
    g.by_label("take_answer", result)
    g.by_label("ask_review", {"asked": "await_review", "notify": "notify", "no plan": "respond"})
    g.edge("await_review", "take_review")
    g.by_label("take_review", {"decided": "respond", "hooks": "after_tool", "changed since": "ask_review"})
    waits = {"outcome": "await_outcome", "question": "await_answer", "approval": "await_review"}
    g.by_label("notify", waits)
    g.edge("summarize", "respond", END)
    g.together(START, "run_tool", "respond")
    return g


def _add_execution_nodes(g: Graph, depth: int) -> None:
    g.nodes(run_tool, ask_outcome, apply_outcome, ask_question, take_answer, ask_review, take_review)
    g.nodes(ask_input, take_input)
    for name in ("await_outcome", "await_answer", "await_review"):
        g.node(name, await_person)
    g.node("notify", notify)
    if depth > 0:
        g.subgraph("subagent", nested_graph_builder("subagent", depth - 1))
    g.subgraph("summarize", nested_graph_builder("summarize"))
    g.node("respond", respond)


@cache
def _build_decide_graph() -> Graph:
    g = Graph("decide", DecideState, input=DecideSend, output=DecideOut)
    g.nodes(resolve, validate, check_mode, check_policy, take_edit)
    g.nodes(request_approval, notify, apply_decision, ready)
    g.subgraph("edit", nested_graph_builder("edit"))
    g.node("await_approval", await_person)
    g.node("respond", respond_undone)
    permitted = {"allow": "ready", "ask": "request_approval"}
    changed = {"changed": "validate", "blocked": "respond", "stopped": "respond"}
    add_hooks(g, {"BeforeTool": (before_tool, {**permitted, **changed})})

    g.edge(START, "resolve")
    g.by_label("resolve", {"known": "validate", "unknown": "respond"})
    g.by_label("validate", {"valid": "check_policy", "in a mode": "check_mode", "invalid": "respond"})
    g.by_label("check_mode", {"allowed": "check_policy", "restricted": "respond"})
    g.by_label("check_policy", {**permitted, "hooks": "before_tool", "deny": "respond", "no match": "edit"})
    g.edge("edit", "take_edit")
    g.by_label("take_edit", {"corrected": "validate", "answered": "respond"})
    asking = {"asked": "await_approval", "notify": "notify", "answered": "respond"}
    g.by_label("request_approval", asking)
    g.edge("notify", "await_approval", "apply_decision")
    refused = {"reject": "respond", "cancel": "respond"}
    again = {"modify": "validate", "changed since": "check_policy"}
    g.by_label("apply_decision", {"proceed": "ready", **again, **refused})
    g.edge("ready", END)
    g.edge("respond", END)
    g.together(START, "resolve", "validate", "check_mode", "check_policy", "ready")
    return g
