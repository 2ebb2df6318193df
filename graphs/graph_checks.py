"""graph_checks: what is checked of a declared graph before it is compiled: keys, edges, joins and loops."""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any

from langgraph.graph import END, START

from interlock.graphs.node_contract import cached_type_hints, channel_types
from interlock.state.chart_channels import ApprovalModeState, strip_chart_metadata
from interlock.state.errors import SetupError
from interlock.state.run import BY_PROCESS, OF_PROCESS, RunChannels


def check_key_types(message_start: str, keys: type, state: type) -> None:
    """Each key of `keys` must be a channel of the graph, with the same type. LangGraph would silently add one."""
    known = channel_types(state)
    for key, kind in cached_type_hints(keys).items():
        if key not in known:
            raise SetupError(
                f"{message_start} {key!r}, which {state.__name__} lacks; it has {sorted(known)}."
            )
        if strip_chart_metadata(known[key]) != strip_chart_metadata(kind):
            raise SetupError(f"{message_start} {key!r} as {kind}, {state.__name__} has it as {known[key]}.")


def check_reserved_channels(name: str, state: type) -> None:
    """A state may not declare a channel of the engine as something else: the engine would obey what nodes write."""
    declared = cached_type_hints(state)
    processes = {
        key: "marked OF_PROCESS"
        for key in BY_PROCESS
        if OF_PROCESS not in getattr(declared.get(key), "__metadata__", ())
    }
    for key, kind in {**cached_type_hints(RunChannels), **_CHARTED, **processes}.items():
        if key in declared and declared[key] != kind:
            raise SetupError(
                f"{name}: {state.__name__} declares {key!r} as {declared[key]}, but it is the engine's. Inherit it "
                "from workflow.AgentState or ToolState, or choose another name."
            )


def check_key_names(message_start: str, state: type, keys: Sequence[str]) -> None:
    """Each key must be one of the graph's."""
    known = channel_types(state)
    if lost := [key for key in keys if key not in known]:
        raise SetupError(f"{message_start} {lost!r}, which {state.__name__} lacks; it has {sorted(known)}.")


def check_shared_keys(message_start: str, subgraph: type, state: type) -> None:
    """A subgraph and its parent must share at least one key, and each shared key must have the same type."""
    mine, theirs = cached_type_hints(state), cached_type_hints(subgraph)
    if not (both := mine.keys() & theirs.keys()):
        raise SetupError(
            f"{message_start}: {subgraph.__name__} and {state.__name__} share no key, so nothing can be handed over."
        )
    for key in both:
        if strip_chart_metadata(mine[key]) != strip_chart_metadata(theirs[key]):
            raise SetupError(
                f"{message_start} has {key!r} as {theirs[key]}, {state.__name__} has it as {mine[key]}."
            )


def check_reachability(name: str, nodes: Set[str], edges: Mapping[str, Set[str]]) -> None:
    """Every node must be reachable from START, and END from it."""
    reached = _nodes_reachable_from(START, edges)
    if lost := nodes - reached:
        raise SetupError(f"{name}: no edge leads to {sorted(lost)}. Add one, or remove the node.")
    reverse: dict[str, set[str]] = {}
    for source, targets in edges.items():
        for target in targets:
            reverse.setdefault(target, set()).add(source)
    if stuck := nodes - _nodes_reachable_from(END, reverse):
        raise SetupError(
            f"{name}: {sorted(stuck)} can't reach the end. Add an edge to END or to a node that can."
        )


def reject_concurrent_joins(
    name: str, joins: Mapping[str, Sequence[str]], edges: Mapping[str, Set[str]]
) -> None:
    """No two joins may wait at the same time: both would run once nothing else is left to do."""

    def before(first: str, second: str) -> bool:
        """Every path to `second` leads through `first`."""
        without = {node: targets - {first} for node, targets in edges.items()}
        return _nodes_reachable_from(START, without).isdisjoint(joins[second])

    for first in joins:
        for second in joins:
            if first < second and not before(first, second) and not before(second, first):
                raise SetupError(
                    f"{name}: the joins {first!r} and {second!r} could wait at the same time. Make the branches of "
                    "one of them a subgraph: g.subgraph(…)."
                )


def branches_of_join(join: Sequence[str], target: str, edges: Mapping[str, Set[str]]) -> list[set[str]]:
    """The nodes of each branch of a join: those before its last node that aren't before all the last nodes."""
    reverse: dict[str, set[str]] = {}
    for source, targets in edges.items():
        for node in targets - {target}:
            reverse.setdefault(node, set()).add(source)
    before = [_nodes_reachable_from(last, reverse) for last in join]
    return [nodes - set[str].intersection(*before) for nodes in before]


def check_branch_writes(name: str, branches: Sequence[Set[str]], keys: Callable[[str], Set[str]]) -> None:
    """No two branches may write the same key without a reducer, as LangGraph couldn't merge it. `keys`: of a node."""
    for number, branch in enumerate(branches):
        for other in branches[number + 1 :]:
            for one in sorted(branch - other):
                for two in sorted(other - branch):
                    if both := keys(one) & keys(two):
                        raise SetupError(
                            f"{name}: {one!r} and {two!r} run side by side and both write {sorted(both)}. Give each a "
                            "key of its own, or the key a reducer: Annotated[…, merge_by_key]."
                        )


def find_loop(edges: Mapping[str, Set[str]], nodes: Iterable[str]) -> list[str]:
    """A node reachable from itself, with the others of that loop; empty if there is none."""
    reached = {
        node: {one for target in edges.get(node, ()) for one in _nodes_reachable_from(target, edges)}
        for node in nodes
    }
    first = next((node for node in reached if node in reached[node]), None)
    return [] if first is None else [n for n in reached if first in reached[n] and n in reached[first]]


def _nodes_reachable_from(start: str, edges: Mapping[str, Set[str]]) -> set[str]:
    seen: set[str] = set()
    todo = [start]
    while todo:
        node = todo.pop()
        if node not in seen:
            seen.add(node)
            todo.extend(edges.get(node, ()))
    return seen


_CHARTED: Mapping[str, Any] = {"approval_mode": ApprovalModeState, "plan_phase": str}
