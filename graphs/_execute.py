"""_execute: one call that may run, to its result in the journal.

A call whose outcome a kill or a stop hid waits for a person, who may send it back to `run_tool`; hooks that were cut
off wait for one, too, and are asked again.
"""

from langgraph.graph import END, START

from interlock.graphs import subagent, summarize
from interlock.graphs._pipeline import Graph
from interlock.nodes.hooks import after_ask, ask_hook, await_person, notify
from interlock.nodes.tools_execute import (
    after_after_tool,
    after_run_tool,
    after_tool,
    by_kind,
    respond,
    run_tool,
)
from interlock.nodes.tools_questions import (
    after_apply_outcome,
    after_ask_review,
    after_result,
    after_take_review,
    apply_outcome,
    ask_outcome,
    ask_question,
    ask_review,
    by_request,
    take_answer,
    take_review,
)
from interlock.state.tools import ExecuteOut, ExecuteSend, ExecuteState

_RUN = {
    "done": "respond",
    "long output": "summarize",
    "hooks": "after_tool",
    "unknown outcome": "ask_outcome",
}
_RESULT = {"done": "respond", "hooks": "after_tool"}
_REVIEW = {"decided": "respond", "hooks": "after_tool", "changed since": "ask_review"}
_AFTER = {"done": "respond", "long output": "summarize", "unknown": "ask_hook"}


def build(depth: int = 0) -> Graph:
    """`depth`: levels of sub-agents below this call; with none, a call that asks for one is answered with an error."""
    g = Graph("execute", ExecuteState, input=ExecuteSend, output=ExecuteOut)
    _nodes(g, depth)
    agent = "subagent" if depth > 0 else "run_tool"
    kinds = {"tool": "run_tool", "question": "ask_question", "agent": agent, "review": "ask_review"}
    g.route(START, by_kind, kinds)
    g.route("run_tool", after_run_tool, _RUN)
    g.route("ask_outcome", after_ask, {"asked": "await_outcome", "notify": "notify"})
    g.edge("await_outcome", "apply_outcome")
    g.route("apply_outcome", after_apply_outcome, {"redo": "run_tool", "skip": "respond"})
    g.route("ask_question", after_ask, {"asked": "await_answer", "notify": "notify"})
    g.edge("await_answer", "take_answer")
    g.route("take_answer", after_result, _RESULT)
    g.route(
        "ask_review", after_ask_review, {"asked": "await_review", "notify": "notify", "no plan": "respond"}
    )
    g.edge("await_review", "take_review")
    g.route("take_review", after_take_review, _REVIEW)
    waits = {"outcome": "await_outcome", "question": "await_answer", "review": "await_review"}
    g.route("notify", by_request, waits)
    if depth > 0:
        g.route("subagent", after_result, _RESULT)
    g.route("after_tool", after_after_tool, _AFTER)
    g.edge("ask_hook", "await_hook")
    g.edge("await_hook", "after_tool")
    g.edge("summarize", "respond")
    g.edge("respond", END)
    return g


def _nodes(g: Graph, depth: int) -> None:
    g.node("run_tool", run_tool)
    g.node("ask_outcome", ask_outcome)
    g.node("await_outcome", await_person)
    g.node("apply_outcome", apply_outcome)
    g.node("ask_question", ask_question)
    g.node("await_answer", await_person)
    g.node("take_answer", take_answer)
    g.node("ask_review", ask_review)
    g.node("await_review", await_person)
    g.node("take_review", take_review)
    g.node("notify", notify)
    if depth > 0:
        g.part("subagent", subagent.build(depth - 1))
    g.node("after_tool", after_tool)
    g.node("ask_hook", ask_hook)
    g.node("await_hook", await_person)
    g.part("summarize", summarize.build())
    g.node("respond", respond)
