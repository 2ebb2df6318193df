"""hook_nodes: the nodes that a graph gets for hooks, for the check of an answer, and around its session.

A node that fires hooks is always `fire → ask → await`, whatever the event. The graph that the user started is wrapped
in `session_start` and `session_end`, if hooks want them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, update_wrapper
from typing import Any, get_type_hints

from langgraph.graph import END, START

from interlock.graphs.graph import Graph, Router
from interlock.graphs.langgraph_node import Node
from interlock.graphs.node_contract import cached_type_hints, make_state_type
from interlock.nodes.check import ask_tests, compare_tests, run_check, run_old_tests, take_tests, try_view
from interlock.nodes.hooks import (
    SessionHooks,
    ask_hook,
    ask_session,
    await_session,
    route_after_await_session,
    route_after_session_hooks,
    route_session_end,
    route_session_start,
    session_end,
    session_start,
    session_start_in_conversation,
)
from interlock.nodes.requests import await_person, notify
from interlock.state.run import HookEvent, RunChannels


def add_hooks(g: Graph, events: Mapping[HookEvent, tuple[Node, Mapping[str, str]]]) -> None:
    """Add each event's node, and map its own labels to existing nodes or to each other.

    Each also gets the label `unknown`: an interrupted firing waits for a person, and resumes with the answer.
    """
    nodes: dict[str, str] = {event: function.__name__ for event, (function, _) in events.items()}
    g.nodes(*(function for function, _ in events.values()), ask_hook)
    g.node("await_hook", await_person)
    for function, targets in events.values():
        g.by_label(function.__name__, {**targets, "unknown": "ask_hook"})
    g.edge("ask_hook", "await_hook")
    if len(nodes) == 1:
        g.edge("await_hook", *nodes.values())
    else:
        g.choose("await_hook", route_to_firing_node, ("hook_event",), [*events], nodes)


def add_answer_check(g: Graph, feedback_node: str) -> None:
    """Add the check that decides on an answer, entered at `run_check`; `feedback_node`: the node that lets the model
    go on."""
    g.nodes(run_check, compare_tests, run_old_tests, try_view, ask_tests, take_tests)
    g.node("notify_tests", notify)
    g.node("await_tests", await_person)
    over = {"feedback": feedback_node, "broken": "finish"}
    g.by_label("run_check", {"passed": "finish", "tests matter": "compare_tests", **over})
    g.by_label("compare_tests", {"same": "finish", "changed": "run_old_tests", "unknown": "ask_tests"})
    g.by_label("run_old_tests", {"passed": "finish", "failed": "try_view", "beside code": "ask_tests"})
    g.edge("try_view", "ask_tests")
    g.by_label("ask_tests", {"asked": "await_tests", "notify": "notify_tests"})
    g.by_label("notify_tests", dict.fromkeys(("approval", "question", "outcome"), "await_tests"))
    g.edge("await_tests", "take_tests")
    # What was accepted may have changed while nobody looked.
    taken = {"accepted": "compare_tests", "trusted": "finish", "stopped": "finish"}
    g.by_label("take_tests", {**taken, "feedback": feedback_node})


def route_to_firing_node(state: Mapping[str, str]) -> str:
    """Route back to the node that fired."""
    return state["hook_event"]


@cache
def cached_session_graph(build: Callable[..., Graph], depth: int | None) -> Graph:
    """`rooted`, declared once per process, which takes 60 ms."""
    return wrap_in_session(build() if depth is None else build(depth))


def wrap_in_session(graph: Graph) -> Graph:
    """The same nodes and edges, wrapped in the session's."""
    given = _with_session_channels(graph.input or graph.state)
    root = replace(graph, state=_with_session_channels(graph.state), input=given)
    talks = "head" in get_type_hints(graph.state)
    root.node("session_start", session_start_in_conversation if talks else session_start)
    root.node("session_end", session_end)
    root.node("ask_session", ask_session)
    root.node("await_session", await_session)
    for declare, arguments in graph.declarations:
        if declare is Graph.edge:
            _add_edge_in_session(root, *arguments)
        elif declare is Graph.choose:
            _add_choice_in_session(root, *arguments)
        else:
            declare(root, *arguments)
    root.route("session_end", route_after_session_hooks, {"": END, "unknown": "ask_session"})
    root.edge("ask_session", "await_session")
    root.route("await_session", route_after_await_session, {"start": "session_start", "end": "session_end"})
    return root


def _with_session_channels(state: type) -> type:
    return make_state_type(state.__name__, {**cached_type_hints(SessionHooks), **cached_type_hints(state)})


def _add_edge_in_session(root: Graph, source: str, target: str) -> None:
    if source == START:
        root.route(START, route_session_start, {"": target, "session": "session_start"})
        root.route("session_start", route_after_session_hooks, {"": target, "unknown": "ask_session"})
    elif target == END:
        root.route(source, route_session_end, {"": END, "session": "session_end"})
    else:
        root.edge(source, target)


def _add_choice_in_session(
    root: Graph,
    source: str,
    router: Router,
    reads: Sequence[str],
    labels: Sequence[str],
    targets: Mapping[str, str],
) -> None:
    """Double each label that leads to the end: the second leads there through `session_end`; begin with the hooks."""
    if source == START:
        known = {*reads, *cached_type_hints(SessionHooks), *cached_type_hints(RunChannels)}
        for at, before, label, target in (
            (START, route_session_start, "session", "session_start"),
            ("session_start", route_after_session_hooks, "unknown", "ask_session"),
        ):
            ways = {**targets, label: target}
            root.choose(at, _make_hooks_first_router(before, router), (*known,), (*labels, label), ways)
        return
    over = {label: f"{label}, session" for label, target in targets.items() if target == END}
    if not over:
        root.choose(source, router, reads, labels, targets)
        return

    def route(state: Any) -> str:
        label = router(state)
        return over[label] if label in over and route_session_end(state) else label

    update_wrapper(route, router, ("__name__",), ())
    further = dict.fromkeys(over.values(), "session_end")
    root.choose(
        source, route, (*reads, *cached_type_hints(RunChannels)), (*labels, *further), {**targets, **further}
    )


def _make_hooks_first_router(first: Callable[[Any], str], router: Router) -> Router:
    def route(state: Any) -> str:
        return first(state) or router(state)

    return update_wrapper(route, router, ("__name__",), ())
