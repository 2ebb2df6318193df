"""graph: a `StateGraph` that rejects, at build and at run time, what LangGraph silently accepts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, cast, get_args

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph

from interlock.graphs.graph_checks import (
    branches_of_join,
    check_branch_writes,
    check_key_names,
    check_key_types,
    check_reachability,
    check_reserved_channels,
    check_shared_keys,
    find_loop,
    reject_concurrent_joins,
)
from interlock.graphs.langgraph_internals import (
    allow_start_at_any_node,
    is_langgraph_graph,
    replace_node_runnables,
)
from interlock.graphs.langgraph_node import Node, make_langgraph_node
from interlock.graphs.node_contract import (
    NodeContract,
    cached_type_hints,
    channel_types,
    find_reducer,
    label,
    with_run_channels,
    wrap_node,
    wrap_router,
    wrap_sender,
)
from interlock.graphs.supersteps import (
    Choice,
    DrawnBranch,
    FanOut,
    Replayed,
    Subgraph,
    SuperstepTask,
    Wiring,
)
from interlock.state.deps import Deps
from interlock.state.errors import SetupError
from interlock.state.node import find_node_spec

Compiled = CompiledStateGraph[Any, Deps, Any, Any]
Router = Callable[[Any], str]
Sender = Callable[[Any], Sequence[Mapping[str, Any]]]


@dataclass
class Graph:
    """A graph under declaration: nodes first, then edges. `build()` checks it as a whole."""

    name: str
    state: type
    input: type | None = None
    """Accepted from a `Send` or a parent; default: the state."""
    output: type | None = None
    """Returned to a parent; for a graph reached by `Send`, reducer channels only."""
    retired: frozenset[str] = frozenset()
    """Keys stored by earlier versions and no longer used; a run that holds other unknown keys is refused."""
    renamed: Mapping[str, str] = field(default_factory=dict[str, str])
    """Nodes that earlier versions had → the one that does the same today: a stored run whose next node is one of them
    goes on there, and may repeat what only computes."""
    labels: tuple[str, ...] = ()
    """Values it may leave in `label`; its parent maps them like a node's."""
    asks: bool = False
    """It always stops for a person, so a loop through it needs no other bound."""
    needs: tuple[str, ...] = ()
    """Keys that a parent's state must have."""
    subgraphs: dict[str, Subgraph] = field(default_factory=dict[str, Subgraph], init=False)

    def __post_init__(self) -> None:
        check_reserved_channels(self.name, self.state)
        self.wiring = Wiring()
        self.declarations: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        """Every declaration, in order; `rooted` rebuilds the graph from them."""
        self._contracts: dict[str, NodeContract | Subgraph] = {}
        self._edges: dict[str, set[str]] = {}
        self._branches: list[tuple[str, DrawnBranch, Mapping[str, str]]] = []
        self._plain: list[tuple[str, str]] = []
        self._sent: set[str] = {START}
        self.joins: dict[str, tuple[str, ...]] = {}
        """Nodes that wait for all branches → the branches' last nodes."""
        self.bounds: set[str] = set()
        """Nodes that limit the passes of a loop, or always stop for a person."""

    def node(self, name: str, function: Node) -> None:
        """Add a node; its reads and writes are declared with it (`state/node.py`) and enforced at run time."""
        self.declarations.append((Graph.node, (name, function)))
        where = f"{self.name}.{name}"
        if spec := find_node_spec(function):
            check_key_names(f"{where} reads", self.state, spec.reads)
            check_key_names(f"{where} writes", self.state, spec.writes)
            contract = NodeContract(self.name, name, self.state, spec.reads, spec.writes, spec.labels)
        else:
            reads, writes = self._read_and_write_types(name, function)
            check_key_types(f"{where} reads", reads, self.state)
            check_key_types(f"{where} writes", writes, self.state)
            contract = NodeContract(
                self.name, name, self.state, (*cached_type_hints(reads),), (*cached_type_hints(writes),)
            )
        self._contracts[name] = contract
        self.wiring.add_node(name, wrap_node(function, contract), contract.reducers)

    def nodes(self, *functions: Node) -> None:
        """Add nodes under their functions' names."""
        for function in functions:
            self.node(function.__name__, function)

    def subgraph(
        self,
        name: str,
        graph: "Graph | Callable[[], Graph] | Any",
        nondeterministic: bool = False,
        replayed: Replayed | None = None,
    ) -> None:
        """Add another graph as a node; a function that builds it is called when a run first enters it.

        Keys of both states are passed in and back. `nondeterministic`, if nothing inside calls a model: as for a node.
        A `StateGraph` becomes one node, which can't `interrupt`.
        """
        where = f"{self.name}.{name}"
        if is_langgraph_graph(graph):
            return self.node(name, make_langgraph_node(where, graph, self.state))
        self.declarations.append((Graph.subgraph, (name, graph, nondeterministic, replayed)))

        def check(graph: Graph) -> None:
            check_key_names(f"{where} is given", self.state, graph.needs)
            if graph.input is None:
                check_shared_keys(where, graph.state, self.state)
            elif graph.output is not None:  # reached by `Send`: it returns its output keys only
                check_key_types(f"{where} returns", graph.output, self.state)

        # Any: the type checker sees this module's own types twice.
        build: Any = (lambda: graph) if isinstance(graph, Graph) else graph
        labels = graph.labels if isinstance(graph, Graph) else ()
        if isinstance(graph, Graph):
            check(graph)
            self.bounds |= {name} if graph.asks else set()
        subgraph = Subgraph(build, cast(Any, check), labels, replayed)
        self.subgraphs[name] = self._contracts[name] = subgraph
        reducers = NodeContract(self.name, name, self.state, (), (*channel_types(self.state),)).reducers
        self.wiring.add_node(name, subgraph.run_as_node, reducers, subgraph.run_in_parent_task)

    def together(self, *names: str) -> None:
        """Let nodes share a superstep: where one of them leads to another one, that needs no checkpoint before it.

        A kill repeats all that ran in the superstep, so each of these only computes, or finds again what it did: the
        reply of a model, the result of a call. START: the graph begins in the superstep of the node that it is.
        """
        self.declarations.append((Graph.together, names))
        if lost := [name for name in names if name != START and name not in self._contracts]:
            raise SetupError(f"{self.name}: together names no node {', '.join(map(repr, lost))}.")
        self.wiring.allow_shared_superstep(names)

    def edge(self, source: str, target: str, *more: str) -> None:
        """Add an edge, and one from each node to the next; several from one node start parallel branches."""
        for pair in pairwise((source, target, *more)):
            self.declarations.append((Graph.edge, pair))
            self._register_edge(*pair)
            self._plain.append(pair)
            self.wiring.add_edge(*pair)

    def join(self, sources: Sequence[str], target: str) -> None:
        """Add an edge from each source: `target` runs once, when all branches have finished."""
        self.declarations.append((Graph.join, (sources, target)))
        for source in sources:
            self._register_edge(source, target)
            self._plain.append((source, target))
            self.wiring.add_edge(source, target)
        self.joins[target] = (*sources,)
        self.wiring.mark_as_join(target)

    def by_label(self, source: str, targets: Mapping[str, str]) -> None:
        """Add a conditional edge on the label the node or subgraph writes; its labels must be the map's keys."""
        labels = self._contracts[source].labels if source in self._contracts else ()
        self.choose(source, label, ("label",), labels, targets)

    def route(self, source: str, router: Router, targets: Mapping[str, str]) -> None:
        """Add a conditional edge; the router's `Literal` labels must be exactly the map's keys.

        Use a router if more than one node's result decides. An empty label is the default path, which isn't logged.
        """
        labels = get_args(self._function_hints(router).get("return"))
        self.choose(source, router, self._declared_reads(router), labels, targets)

    def choose(
        self,
        source: str,
        router: Router,
        reads: Sequence[str],
        labels: Sequence[str],
        targets: Mapping[str, str],
    ) -> None:
        """`route` for a function without annotations: the caller passes what it reads and returns."""
        self.declarations.append((Graph.choose, (source, router, reads, labels, targets)))
        if set(labels) != set(targets):
            raise SetupError(
                f"{self.name}: {router.__name__} returns {sorted(labels)}, its map has {sorted(targets)}."
            )
        for target in targets.values():
            self._register_edge(source, target)
        self.wiring.add_edge(source, Choice(wrap_router(router, reads, labels), targets))
        self._branches.append((source, self._make_uniquely_named_branch(source, router.__name__), targets))

    def _make_uniquely_named_branch(self, source: str, name: str, *, sends: bool = False) -> DrawnBranch:
        """LangGraph requires distinct names for a node's branches."""
        taken = [branch.name for start, branch, _ in self._branches if start == source]
        return DrawnBranch(f"{name}_{len(taken) + 1}" if name in taken else name, sends=sends)

    def fan_out(
        self,
        source: str,
        sender: Sender,
        target: str,
        otherwise: str | None = None,
        apart: Callable[[Any], bool] = lambda _: False,
    ) -> None:
        """Send each payload to `target`, in parallel; without any, go to `otherwise`.

        An only payload may share its sender's superstep (`together`). `apart`: not in a state for which this returns
        true, as what led to it must be on disk first.
        """
        self.declarations.append((Graph.fan_out, (source, sender, target, otherwise, apart)))
        targets = [target] if otherwise is None else [target, otherwise]
        for name in targets:
            self._register_edge(source, name)
        self._sent.add(target)
        sends = wrap_sender(
            sender,
            self._declared_reads(sender),
            target,
            self._payload_type_and_keys_getter(target),
            otherwise,
        )
        self.wiring.add_edge(source, FanOut(sends, apart))
        branch = self._make_uniquely_named_branch(source, getattr(sender, "__name__", "sender"), sends=True)
        self._branches.append((source, branch, {name: name for name in targets}))

    def build(self) -> StateGraph[Any, Deps, Any, Any]:
        """Check and return the graph. Raises `SetupError` naming what is unreachable or can't end."""
        for old, name in self.renamed.items():
            if old in self._contracts or name not in self._contracts:
                raise SetupError(
                    f"{self.name}: {old!r} can't be renamed to {name!r}: expected an old and a new node."
                )
        check_reachability(self.name, set(self._contracts), self._edges)
        reject_concurrent_joins(self.name, self.joins, self._edges)
        for target, sources in self.joins.items():
            check_branch_writes(
                self.name, branches_of_join(sources, target, self._edges), self._written_keys_without_reducer
            )
        return self._build_state_graph

    def _written_keys_without_reducer(self, name: str) -> set[str]:
        """Keys a node writes without a reducer; for a subgraph, all shared keys."""
        if (contract := self._contracts.get(name)) is None:
            return set()
        if isinstance(contract, NodeContract):
            written = {*contract.writes}
        else:
            written = {*channel_types(contract.graph.output or contract.graph.state)}
        known = channel_types(self.state)
        return {key for key in written if key in known and not find_reducer(known[key])}

    def unbounded(self) -> list[str]:
        """Nodes that could loop for ever."""
        return find_loop(
            {node: targets - self.bounds for node, targets in self._edges.items()}, self._contracts
        )

    @cached_property
    def _build_state_graph(self) -> Any:  # Any: the overloads of `add_node` aren't fully typed
        input_schema = with_run_channels(self.input or self.state)
        made: Any = StateGraph  # its types aren't all known
        graph = made(
            with_run_channels(self.state),
            context_schema=Deps,
            input_schema=input_schema,
            output_schema=self.output,
        )
        channels = channel_types(self.state).keys() | channel_types(self.input or self.state).keys()
        for name in self._contracts:
            task = SuperstepTask(self.wiring, name, channels, sent=name in self._sent)
            graph.add_node(name, task, defer=name in self.joins)
        for old, name in self.renamed.items():
            graph.add_node(old, SuperstepTask(self.wiring, name, channels, sent=name in self._sent))
        for source, target in self._plain:
            graph.add_edge(source, target)
        for source, branch, targets in self._branches:
            graph.add_conditional_edges(source, branch, {**targets})
        return graph

    @cached_property
    def compiled(self) -> Compiled:
        """Compiled for use as a subgraph: the same in every parent."""
        compiled = self.compile()
        allow_start_at_any_node(compiled)
        return compiled

    def compile(self, checkpointer: BaseCheckpointSaver[Any] | None = None) -> Compiled:
        """Check and compile; subgraphs keep LangGraph's default persistence."""
        # docs/internals.md#parts-of-a-graph
        compiled: Any = self.build().compile(checkpointer=checkpointer, name=self.name)  # pyright: ignore[reportUnknownMemberType]
        start = SuperstepTask(self.wiring, START, channel_types(self.input or self.state).keys(), sent=True)
        replace_node_runnables(compiled, start, self.subgraphs)
        return compiled

    def _register_edge(self, source: str, target: str) -> None:
        for name in (source, target):
            if name not in (START, END) and name not in self._contracts:
                raise SetupError(f"{self.name}: edge {source!r} → {target!r} names no node {name!r}.")
        self._edges.setdefault(source, set()).add(target)

    def _payload_type_and_keys_getter(self, target: str) -> Callable[[], tuple[type, tuple[str, ...]]]:
        contract = self._contracts[target]
        if isinstance(contract, NodeContract):
            return lambda: (contract.state, contract.reads)
        return lambda: (contract.input_schema, (*cached_type_hints(contract.input_schema),))

    def _declared_reads(self, function: Callable[..., Any]) -> tuple[str, ...]:
        reads = next((t for key, t in self._function_hints(function).items() if key != "return"), None)
        if reads is None:
            raise self._missing_annotations_error(function)
        check_key_types(f"{self.name}: {function.__name__} reads", reads, self.state)
        return (*cached_type_hints(reads),)

    def _function_hints(self, function: Callable[..., Any]) -> Mapping[str, Any]:
        try:
            return cached_type_hints(function)
        except TypeError:  # no function of its own, such as a partial
            raise self._missing_annotations_error(function) from None

    def _missing_annotations_error(self, function: Any) -> SetupError:
        name = getattr(function, "__name__", repr(function))
        return SetupError(
            f"{self.name}: {'a lambda' if name == '<lambda>' else name} says nothing of the state that it reads and of "
            "what it returns. Write a function with annotations, whose argument is a TypedDict of the keys that it "
            "reads: def each(state: Reads) -> list[Payload]."
        )

    def _read_and_write_types(self, name: str, function: Node) -> tuple[type, type]:
        hints = dict(cached_type_hints(function))
        try:
            writes = hints.pop("return")
            return next(iter(hints.values())), writes
        except (KeyError, StopIteration):
            raise SetupError(
                f"{self.name}.{name}: {function.__name__} needs annotations `(state: X, …) -> Y`."
            ) from None
