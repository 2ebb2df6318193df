"""_swapped: a workflow with another function in the place of one node's. The graph is declared once more with it."""

from collections.abc import Callable
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from interlock.graphs._pipeline import Graph, Node, Pipeline
from interlock.graphs._processors import built
from interlock.graphs._wrap import called
from interlock.state.errors import UserError
from interlock.state.node import NodeSpec, node, spec_of


def with_node(chosen: Pipeline, place: str, other: Node, due: Callable[[], bool]) -> Pipeline:
    """`place`: a node's name, behind the names of the parts that it is in: `turn/begin`. `due`: it is asked instead.

    Raises `UserError` where there is no such node, or where the edges behind it map other labels; `SetupError` where
    the state has no such keys.
    """
    made = replace(chosen, build=built(chosen.build, lambda graph: _swapped(graph, place, other, due)))
    made.declared()
    return made


def outside(chosen: Pipeline) -> dict[str, NodeSpec]:
    """The nodes of its own that read what may be another later."""
    named = [arguments for declare, arguments in chosen.declared().declared if declare is Graph.node]
    return {name: spec for name, function in named if (spec := spec_of(function)) and spec.outside}


def _swapped(graph: Graph, place: str, other: Node, due: Callable[[], bool]) -> Graph:
    name, _, inner = place.partition("/")
    kind = Graph.part if inner else Graph.node
    names = [arguments[0] for declare, arguments in graph.declared if declare is kind]
    if name not in names:
        hint = f" Did you mean {near[0]!r}?" if (near := get_close_matches(name, names, 1, 0.5)) else ""
        what = "part" if inner else "node"
        has = ", ".join(names) or "none"
        raise UserError(f"{graph.name!r} has no {what} {name!r}.{hint} It has the {what}s: {has}.")
    made = Graph(
        graph.name,
        graph.state,
        input=graph.input,
        output=graph.output,
        retired=graph.retired,
        labels=graph.labels,
        asks=graph.asks,
    )
    for declare, arguments in graph.declared:
        if declare is Graph.node and (name, "") == (arguments[0], inner):
            made.node(name, _either(f"{graph.name}.{name}", arguments[1], other, due))
        elif declare is Graph.part and arguments[0] == name:
            part: Graph = arguments[1] if isinstance(arguments[1], Graph) else arguments[1]()
            made.part(name, _swapped(part, inner, other, due), *arguments[2:])
        else:
            declare(made, *arguments)
    made.bounds |= graph.bounds
    return made


def _either(where: str, old: Node, new: Node, due: Callable[[], bool]) -> Node:
    was, now = spec_of(old), spec_of(new)
    assert was is not None and now is not None
    if {*was.labels} != {*now.labels}:
        told = [", ".join(spec.labels) or "none" for spec in (was, now)]
        raise UserError(f"{where} has the labels {told[0]}, the other function {told[1]}. Expected the same.")

    @node(
        reads=(*dict.fromkeys((*was.reads, *now.reads)),),
        writes=(*dict.fromkeys((*was.writes, *now.writes)),),
        labels=now.labels,
        timeout_s=now.timeout_s,
        retries=now.retries,
        retry_wait_s=now.retry_wait_s,
        pure=was.pure,
        recorded=was.recorded,
    )
    async def either(state: Any, runtime: Any) -> Any:
        return await called(new if due() else old, state, runtime)

    return either
