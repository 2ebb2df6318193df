"""_hooks: the part of a graph that fires hooks: `fire → ask → await`, the same wherever an event stands."""

from collections.abc import Collection, Mapping

from interlock.graphs._pipeline import Graph, Node, Router
from interlock.nodes.hooks import ask_hook, await_person
from interlock.state.errors import RunError
from interlock.state.hooks import HookEvent


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
