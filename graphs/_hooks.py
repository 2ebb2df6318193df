"""_hooks: the nodes that fire hooks: inside a graph, and around the graph of a workflow that a user started.

Inside it is `fire → ask → await`, the same wherever an event stands. `session_start` and `session_end` are entered only
where such hooks are configured: START leads past the one, and every way to the end past the other.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, get_type_hints

from langgraph.graph import END, START

from interlock.graphs._checks import hints_of, state_of
from interlock.graphs._pipeline import Graph, Node, Router
from interlock.nodes.hooks import (
    Session,
    after_await_session,
    after_session,
    ask_hook,
    ask_session,
    await_person,
    await_session,
    by_session_end,
    by_session_start,
    session_end,
    session_start,
    session_start_in_talk,
)
from interlock.state.errors import RunError
from interlock.state.hooks import HookEvent
from interlock.state.run import RunChannels


def hooks(g: Graph, events: Mapping[HookEvent, tuple[Node, Mapping[str, str]]]) -> None:
    """Add each event's node, with where its own labels lead: to nodes that are there already, or to each other.

    Beside those it has `unknown`: a firing that was cut off waits for a person, and is taken up again with the answer.
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
        g.choose("await_hook", _by_event(events), ("hook_event",), [*events], nodes)


def _by_event(events: Collection[str]) -> Router:
    """Back to the node that fired."""

    def after_await_hook(state: Mapping[str, str]) -> str:
        event = state["hook_event"]
        if event not in events:
            raise RunError(f"A person was asked about hooks of {event!r}; expected one of {sorted(events)}.")
        return event

    return after_await_hook


def rooted(graph: Graph) -> Graph:
    """The same nodes and edges, with the session's around them."""
    root = Graph(
        graph.name,
        _with_session(graph.state),
        input=_with_session(graph.input or graph.state),
        output=graph.output,
        retired=graph.retired,
    )
    talks = "head" in get_type_hints(graph.state)
    root.node("session_start", session_start_in_talk if talks else session_start)
    root.node("session_end", session_end)
    root.node("ask_session", ask_session)
    root.node("await_session", await_session)
    for declare, arguments in graph.declared:
        if declare is Graph.edge:
            _edge(root, *arguments)
        elif declare is Graph.choose:
            _choose(root, *arguments)
        else:
            declare(root, *arguments)
    root.route("session_end", after_session, {"": END, "unknown": "ask_session"})
    root.edge("ask_session", "await_session")
    root.route("await_session", after_await_session, {"start": "session_start", "end": "session_end"})
    return root


def _with_session(state: type) -> type:
    return state_of(state.__name__, {**hints_of(Session), **hints_of(state)})


def _edge(root: Graph, source: str, target: str) -> None:
    if source == START:
        root.route(START, by_session_start, {"": target, "session": "session_start"})
        root.route("session_start", after_session, {"": target, "unknown": "ask_session"})
    elif target == END:
        root.route(source, by_session_end, {"": END, "session": "session_end"})
    else:
        root.edge(source, target)


def _choose(
    root: Graph,
    source: str,
    router: Router,
    reads: Sequence[str],
    labels: Sequence[str],
    targets: Mapping[str, str],
) -> None:
    """Each label that leads to the end has a second one: the way there through the session's end."""
    over = {label: f"{label}, session" for label, target in targets.items() if target == END}
    if not over:
        root.choose(source, router, reads, labels, targets)
        return

    def route(state: Any) -> str:
        label = router(state)
        return over[label] if label in over and by_session_end(state) else label

    route.__name__ = router.__name__
    further = dict.fromkeys(over.values(), "session_end")
    root.choose(source, route, (*reads, *hints_of(RunChannels)), (*labels, *further), {**targets, **further})
