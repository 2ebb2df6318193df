"""_execute: one call that may run, to its result in the journal.

A call whose outcome a crash hid waits for a person, who may send it back to `run_tool`.
"""

from langgraph.graph import END, START

from interlock.graphs import subagent, summarize
from interlock.graphs._pipeline import Graph
from interlock.nodes.tools.apply_outcome import apply_outcome
from interlock.nodes.tools.ask_outcome import ask_outcome
from interlock.nodes.tools.ask_question import ask_question
from interlock.nodes.tools.ask_review import ask_review
from interlock.nodes.tools.await_person import await_person
from interlock.nodes.tools.respond import respond
from interlock.nodes.tools.routes import (
    after_apply_outcome,
    after_ask_review,
    after_run_tool,
    after_take_review,
    by_kind,
)
from interlock.nodes.tools.run_tool import run_tool
from interlock.nodes.tools.take_answer import take_answer
from interlock.nodes.tools.take_review import take_review
from interlock.state.tools import ExecuteOut, ExecuteSend, ExecuteState


def build(depth: int = 0) -> Graph:
    """`depth`: levels of sub-agents below this call; with none, a call that asks for one is answered with an error."""
    g = Graph("execute", ExecuteState, input=ExecuteSend, output=ExecuteOut)
    g.node("run_tool", run_tool)
    g.part("summarize", summarize.build())
    g.node("ask_outcome", ask_outcome)
    g.node("await_outcome", await_person)
    g.node("apply_outcome", apply_outcome)
    g.node("ask_question", ask_question)
    g.node("await_answer", await_person)
    g.node("take_answer", take_answer)
    g.node("ask_review", ask_review)
    g.node("await_review", await_person)
    g.node("take_review", take_review)
    if depth > 0:
        g.part("subagent", subagent.build(depth - 1))
    g.node("respond", respond)

    agent = "subagent" if depth > 0 else "run_tool"
    kinds = {"tool": "run_tool", "question": "ask_question", "agent": agent, "review": "ask_review"}
    g.route(START, by_kind, kinds)
    g.route(
        "run_tool",
        after_run_tool,
        {"done": "respond", "long output": "summarize", "unknown outcome": "ask_outcome"},
    )
    g.edge("summarize", "respond")
    g.edge("ask_outcome", "await_outcome")
    g.edge("await_outcome", "apply_outcome")
    g.route("apply_outcome", after_apply_outcome, {"redo": "run_tool", "skip": "respond"})
    g.edge("ask_question", "await_answer")
    g.edge("await_answer", "take_answer")
    g.edge("take_answer", "respond")
    g.route("ask_review", after_ask_review, {"asked": "await_review", "no plan": "respond"})
    g.edge("await_review", "take_review")
    g.route("take_review", after_take_review, {"decided": "respond", "changed since": "ask_review"})
    if depth > 0:
        g.edge("subagent", "respond")
    g.edge("respond", END)
    return g
