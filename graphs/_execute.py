"""_execute: one call that may run, to its result in the journal.

A call whose outcome a kill or a stop hid, or whose MCP server asks for input, waits for a person, who may send it back
to `run_tool`; hooks that were cut
off wait for one, too, and are asked again.
"""

from langgraph.graph import END, START

from interlock.graphs import subagent, summarize
from interlock.graphs._hooks import hooks
from interlock.graphs._pipeline import Graph
from interlock.nodes.hooks import await_person, notify
from interlock.nodes.tools_execute import after_tool, by_kind, respond, run_tool
from interlock.nodes.tools_input import ask_input, by_asker, take_input
from interlock.nodes.tools_questions import (
    after_subagent,
    apply_outcome,
    ask_outcome,
    ask_question,
    ask_review,
    take_answer,
    take_review,
)
from interlock.state.tools import ExecuteOut, ExecuteSend, ExecuteState


def build(depth: int = 0) -> Graph:
    """`depth`: levels of sub-agents below this call; with none, a call that asks for one is answered with an error."""
    g = Graph("execute", ExecuteState, input=ExecuteSend, output=ExecuteOut)
    _nodes(g, depth)
    hooks(g, {"AfterTool": (after_tool, {"done": "respond", "long output": "summarize"})})

    agent = "subagent" if depth > 0 else "run_tool"
    kinds = {"tool": "run_tool", "question": "ask_question", "agent": agent, "review": "ask_review"}
    g.route(START, by_kind, kinds)
    result = {"done": "respond", "hooks": "after_tool"}
    asks = {"unknown outcome": "ask_outcome", "input wanted": "ask_input"}
    g.by_label("run_tool", {**result, "long output": "summarize", **asks})
    if depth > 0:
        g.route("subagent", after_subagent, result)
    g.by_label("ask_outcome", {"asked": "await_outcome", "notify": "notify"})
    g.edge("await_outcome", "apply_outcome")
    g.by_label("apply_outcome", {"redo": "run_tool", "skip": "respond"})
    g.by_label("ask_question", {"asked": "await_answer", "notify": "notify"})
    g.by_label("ask_input", {"asked": "await_answer", "notify": "notify"})
    g.route("await_answer", by_asker, {"model": "take_answer", "server": "take_input"})
    g.by_label("take_input", {"given": "run_tool", "unfit": "ask_input", "rejected": "respond"})
    g.by_label("take_answer", result)
    g.by_label("ask_review", {"asked": "await_review", "notify": "notify", "no plan": "respond"})
    g.edge("await_review", "take_review")
    g.by_label("take_review", {"decided": "respond", "hooks": "after_tool", "changed since": "ask_review"})
    waits = {"outcome": "await_outcome", "question": "await_answer", "approval": "await_review"}
    g.by_label("notify", waits)
    g.edge("summarize", "respond")
    g.edge("respond", END)
    return g


def _nodes(g: Graph, depth: int) -> None:
    g.nodes(run_tool, ask_outcome, apply_outcome, ask_question, take_answer, ask_review, take_review)
    g.nodes(ask_input, take_input)
    for name in ("await_outcome", "await_answer", "await_review"):
        g.node(name, await_person)
    g.node("notify", notify)
    if depth > 0:
        g.part("subagent", lambda: subagent.build(depth - 1))
    g.part("summarize", summarize.build)
    g.node("respond", respond)
