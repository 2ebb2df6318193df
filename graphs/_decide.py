"""_decide: one call, from its name to `ready`, or to an answer without execution.

A person's edit, a hook's and one that `edit` corrected go back to `validate`, a request whose files changed to
`check_policy`; hooks that were cut off wait for a person and are asked again.
"""

from functools import cache

from langgraph.graph import END, START

from interlock.graphs import edit
from interlock.graphs._pipeline import Graph
from interlock.nodes.hooks import ask_hook, await_person, notify
from interlock.nodes.tools_approval import (
    after_apply_decision,
    after_request,
    apply_decision,
    request_approval,
)
from interlock.nodes.tools_decide import (
    after_before_tool,
    after_check_policy,
    after_resolve,
    after_take_edit,
    after_validate,
    before_tool,
    check_policy,
    ready,
    resolve,
    respond_undone,
    take_edit,
    validate,
)
from interlock.state.tools import DecideOut, DecideSend, DecideState

_POLICY = {
    "allow": "ready",
    "ask": "request_approval",
    "hooks": "before_tool",
    "deny": "respond",
    "no match": "edit",
}
_HOOKS = {
    "allow": "ready",
    "ask": "request_approval",
    "changed": "validate",
    "blocked or stopped": "respond",
    "unknown": "ask_hook",
}
_DECISION = {
    "proceed": "ready",
    "modify": "validate",
    "changed since": "check_policy",
    "reject or cancel": "respond",
}


@cache
def build() -> Graph:
    g = Graph("decide", DecideState, input=DecideSend, output=DecideOut)
    g.node("resolve", resolve)
    g.node("validate", validate)
    g.node("check_policy", check_policy)
    g.part("edit", edit.build())
    g.node("take_edit", take_edit)
    g.node("before_tool", before_tool)
    g.node("ask_hook", ask_hook)
    g.node("await_hook", await_person)
    g.node("request_approval", request_approval)
    g.node("notify", notify)
    g.node("await_approval", await_person)
    g.node("apply_decision", apply_decision)
    g.node("ready", ready)
    g.node("respond", respond_undone)

    g.edge(START, "resolve")
    g.route("resolve", after_resolve, {"known": "validate", "unknown": "respond"})
    g.route("validate", after_validate, {"valid": "check_policy", "invalid": "respond"})
    g.route("check_policy", after_check_policy, _POLICY)
    g.edge("edit", "take_edit")
    g.route("take_edit", after_take_edit, {"corrected": "validate", "answered": "respond"})
    g.route("before_tool", after_before_tool, _HOOKS)
    g.edge("ask_hook", "await_hook")
    g.edge("await_hook", "before_tool")
    asking = {"asked": "await_approval", "notify": "notify", "impossible": "respond"}
    g.route("request_approval", after_request, asking)
    g.edge("notify", "await_approval")
    g.edge("await_approval", "apply_decision")
    g.route("apply_decision", after_apply_decision, _DECISION)
    g.edge("ready", END)
    g.edge("respond", END)
    return g
