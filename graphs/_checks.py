"""_checks: what must hold of a graph before it is compiled."""

from collections.abc import Mapping, Sequence, Set
from functools import cache
from typing import Any, get_type_hints

from langgraph.graph import END, START
from typing_extensions import TypedDict

from interlock.state.errors import SetupError
from interlock.state.run import RunChannels


@cache
def hints_of(annotated: Any) -> Mapping[str, Any]:
    """What is annotated on a class or a function: asked for thousands of times while graphs are declared."""
    return get_type_hints(annotated, include_extras=True)


@cache
def channels_of(state: type) -> Mapping[str, Any]:
    """A graph's channels and their types: its state's, and those that every graph has."""
    return {**hints_of(state), **hints_of(RunChannels)}


@cache
def with_run_channels(state: type) -> type:
    """The TypedDict, with the channels that every graph has."""
    channels = dict(channels_of(state))
    return TypedDict(state.__name__, channels, total=False)  # pyright: ignore[reportArgumentType,reportReturnType]


def check_keys(what: str, part: type, state: type) -> None:
    """Each key of `part` is a channel of the graph, with the same type. LangGraph would add a channel instead."""
    known = channels_of(state)
    for key, kind in hints_of(part).items():
        if key not in known:
            raise SetupError(f"{what} {key!r}, which {state.__name__} lacks; it has {sorted(known)}.")
        if known[key] != kind:
            raise SetupError(f"{what} {key!r} as {kind}, {state.__name__} has it as {known[key]}.")


def check_named(what: str, state: type, keys: Sequence[str]) -> None:
    """Each key is one of the graph's."""
    known = channels_of(state)
    if lost := [key for key in keys if key not in known]:
        raise SetupError(f"{what} {lost!r}, which {state.__name__} lacks; it has {sorted(known)}.")


def check_shared(what: str, part: type, state: type) -> None:
    """Keys that a part and its parent both have are of one type; at least one is shared."""
    mine, theirs = hints_of(state), hints_of(part)
    if not (both := mine.keys() & theirs.keys()):
        raise SetupError(
            f"{what}: {part.__name__} and {state.__name__} share no key, so nothing can be handed over."
        )
    for key in both:
        if mine[key] != theirs[key]:
            raise SetupError(f"{what} has {key!r} as {theirs[key]}, {state.__name__} has it as {mine[key]}.")


def check_shape(name: str, nodes: Set[str], edges: Mapping[str, Set[str]]) -> None:
    """Every node can be reached from START and can reach END."""
    reached = _closure(START, edges)
    if lost := nodes - reached:
        raise SetupError(f"{name}: no edge leads to {sorted(lost)}. Add one, or remove the node.")
    reverse: dict[str, set[str]] = {}
    for source, targets in edges.items():
        for target in targets:
            reverse.setdefault(target, set()).add(source)
    if stuck := nodes - _closure(END, reverse):
        raise SetupError(
            f"{name}: {sorted(stuck)} can't reach the end. Add an edge to END or to a node that can."
        )


def _closure(start: str, edges: Mapping[str, Set[str]]) -> set[str]:
    seen: set[str] = set()
    todo = [start]
    while todo:
        node = todo.pop()
        if node not in seen:
            seen.add(node)
            todo.extend(edges.get(node, ()))
    return seen
