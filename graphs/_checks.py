"""_checks: what must hold of a graph before it is compiled."""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
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
    return state_of(state.__name__, channels_of(state))


def state_of(name: str, keys: Mapping[str, Any]) -> type:
    """A state whose keys are only known where it is made."""
    channels = dict(keys)
    return TypedDict(name, channels, total=False)  # pyright: ignore[reportArgumentType,reportReturnType]


def reducer_of(kind: Any) -> Callable[[Any, Any], Any] | None:
    """What makes one value of two, where a channel's type names it."""
    return next((m for m in getattr(kind, "__metadata__", ()) if callable(m)), None)


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


def check_joins(name: str, joins: Mapping[str, Sequence[str]], edges: Mapping[str, Set[str]]) -> None:
    """No join may wait while another does: both would run when nothing else is left to do."""

    def before(first: str, second: str) -> bool:
        """Every way to `second` leads through `first`."""
        without = {node: targets - {first} for node, targets in edges.items()}
        return _closure(START, without).isdisjoint(joins[second])

    for first in joins:
        for second in joins:
            if first < second and not before(first, second) and not before(second, first):
                raise SetupError(
                    f"{name}: the joins {first!r} and {second!r} could wait at the same time. Make the branches of "
                    "one of them a part: g.part(…)."
                )


def branches_of(join: Sequence[str], target: str, edges: Mapping[str, Set[str]]) -> list[set[str]]:
    """The nodes of each branch that ends at a join: those before its last node that aren't before all of them."""
    reverse: dict[str, set[str]] = {}
    for source, targets in edges.items():
        for node in targets - {target}:
            reverse.setdefault(node, set()).add(source)
    before = [_closure(last, reverse) for last in join]
    return [nodes - set[str].intersection(*before) for nodes in before]


def check_branches(name: str, branches: Sequence[Set[str]], keys: Callable[[str], Set[str]]) -> None:
    """No key without a reducer is written by two branches: LangGraph couldn't say which counts. `keys`: of a node."""
    for number, branch in enumerate(branches):
        for other in branches[number + 1 :]:
            for one in sorted(branch - other):
                for two in sorted(other - branch):
                    if both := keys(one) & keys(two):
                        raise SetupError(
                            f"{name}: {one!r} and {two!r} run side by side and both write {sorted(both)}. Give each a "
                            "key of its own, or the key a reducer: Annotated[…, merge_by_key]."
                        )


def loop_in(edges: Mapping[str, Set[str]], nodes: Iterable[str]) -> list[str]:
    """A node that can be reached from itself, with the others of that loop; nothing where there is none."""
    reached = {node: _closure_after(node, edges) for node in nodes}
    first = next((node for node in reached if node in reached[node]), None)
    return [] if first is None else [n for n in reached if first in reached[n] and n in reached[first]]


def _closure_after(start: str, edges: Mapping[str, Set[str]]) -> set[str]:
    return {node for target in edges.get(start, ()) for node in _closure(target, edges)}


def _closure(start: str, edges: Mapping[str, Set[str]]) -> set[str]:
    seen: set[str] = set()
    todo = [start]
    while todo:
        node = todo.pop()
        if node not in seen:
            seen.add(node)
            todo.extend(edges.get(node, ()))
    return seen
