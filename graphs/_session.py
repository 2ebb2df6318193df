"""_session: `session_start` and `session_end` around the graph of a workflow that a user started.

They are entered only where such hooks are configured: START leads past the one, and every way to the end past the
other.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_type_hints

from langgraph.graph import END, START

from interlock.graphs._checks import hints_of, state_of
from interlock.graphs._pipeline import Graph
from interlock.nodes.hooks import (
    Session,
    after_await_session,
    after_session,
    ask_session,
    await_session,
    by_session_end,
    by_session_start,
    session_end,
    session_start,
    session_start_in_talk,
)
from interlock.state.run import RunChannels

Router = Callable[[Any], str]


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
