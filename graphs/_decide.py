"""_decide: one call, from its name to `ready`, or to an answer without execution.

A person's edit, a hook's and one that `edit` corrected go back to `validate`, a request whose files changed to
`check_policy`; hooks that were cut off wait for a person and are asked again.
"""

from functools import cache

from langgraph.graph import END, START

from interlock.graphs import edit
from interlock.graphs._hooks import hooks
from interlock.graphs._pipeline import Graph
from interlock.nodes.hooks import await_person, notify
from interlock.nodes.tools_approval import apply_decision, request_approval
from interlock.nodes.tools_decide import (
    before_tool,
    check_mode,
    check_policy,
    ready,
    resolve,
    respond_undone,
    take_edit,
    validate,
)
from interlock.state.tools import DecideOut, DecideSend, DecideState


@cache
def build() -> Graph:
    g = Graph("decide", DecideState, input=DecideSend, output=DecideOut)
    g.nodes(
        resolve,
        validate,
        check_mode,
        check_policy,
        take_edit,
        request_approval,
        notify,
        apply_decision,
        ready,
    )
    g.part("edit", edit.build)
    g.node("await_approval", await_person)
    g.node("respond", respond_undone)
    permitted = {"allow": "ready", "ask": "request_approval"}
    changed = {"changed": "validate", "blocked or stopped": "respond"}
    hooks(g, {"BeforeTool": (before_tool, {**permitted, **changed})})

    g.edge(START, "resolve")
    g.by_label("resolve", {"known": "validate", "unknown": "respond"})
    g.by_label("validate", {"valid": "check_policy", "in a mode": "check_mode", "invalid": "respond"})
    g.by_label("check_mode", {"allowed": "check_policy", "restricted": "respond"})
    g.by_label("check_policy", {**permitted, "hooks": "before_tool", "deny": "respond", "no match": "edit"})
    g.edge("edit", "take_edit")
    g.by_label("take_edit", {"corrected": "validate", "answered": "respond"})
    asking = {"asked": "await_approval", "notify": "notify", "impossible": "respond"}
    g.by_label("request_approval", asking)
    g.edge("notify", "await_approval")
    g.edge("await_approval", "apply_decision")
    refused = {"reject": "respond", "cancel": "respond"}
    again = {"modify": "validate", "changed since": "check_policy"}
    g.by_label("apply_decision", {"proceed": "ready", **again, **refused})
    g.edge("ready", END)
    g.edge("respond", END)
    return g
