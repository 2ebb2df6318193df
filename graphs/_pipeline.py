"""_pipeline: a `StateGraph` that refuses, at build and at run time, what LangGraph accepts silently."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from inspect import signature
from typing import Any, get_args

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from pydantic import ValidationError

from interlock.graphs._chain import Chain, Part, takes_up, went_on
from interlock.graphs._checks import check_keys, check_shape, check_shared, hints_of, keys_of
from interlock.graphs._wrap import by_label, checked_node, checked_router, checked_sender, with_run_channels
from interlock.state.deps import Deps
from interlock.state.errors import InputError, SetupError
from interlock.state.messages import Message
from interlock.state.node import spec_of
from interlock.state.run import WorkflowInput, WorkflowOutput
from interlock.state.workflow import WorkflowContext

Compiled = CompiledStateGraph[Any, Deps, Any, Any]
Node = Callable[..., Awaitable[Any]]
Router = Callable[[Any], str]
Sender = Callable[[Any], Sequence[Mapping[str, Any]]]


@dataclass
class Graph:
    """One graph while it is declared: nodes, then edges. `build()` checks it as a whole."""

    name: str
    state: type
    input: type | None = None
    """What a `Send` or a parent may hand in; default: the state."""
    output: type | None = None
    """What a parent gets back; for a graph reached by `Send` reducer channels only."""
    parts: dict[str, "Graph"] = field(default_factory=dict[str, "Graph"])
    retired: frozenset[str] = frozenset()
    """Keys that earlier versions stored and nobody needs any more: a run that holds others is refused."""

    def __post_init__(self) -> None:
        # Any: the overloads of `add_node` aren't fully typed.
        self._graph: Any = StateGraph(
            with_run_channels(self.state),
            context_schema=Deps,
            input_schema=with_run_channels(self.input or self.state),
            output_schema=self.output,
        )
        self._inputs: dict[str, type] = {}
        self._labels: dict[str, tuple[str, ...]] = {}
        self._edges: dict[str, set[str]] = {}
        self._chain = Chain()
        self.declared: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        """Every declaration, in order: what `rooted` builds its graph from."""

    def node(self, name: str, function: Node) -> None:
        """Add a node; what it reads and writes is declared with it (`state/node.py`) and held at run time."""
        self.declared.append((Graph.node, (name, function)))
        if spec := spec_of(function):
            reads = keys_of(f"{self.name}.{name} reads", self.state, spec.reads)
            writes = keys_of(f"{self.name}.{name} writes", self.state, spec.writes)
            self._labels[name] = spec.labels
        else:
            reads, writes = self._annotations(name, function)
        check_keys(f"{self.name}.{name} reads", reads, self.state)
        check_keys(f"{self.name}.{name} writes", writes, self.state)
        self._inputs[name] = reads
        labels = self._labels.get(name, ())
        wrapped = checked_node(self.name, name, function, reads, writes, labels)
        if spec and (spec.pure or spec.recorded):
            self._chain.add(name, wrapped, with_run_channels(reads), writes, pure=spec.pure)
        if spec and spec.pure:
            # What it runs on to reads other keys.
            self._graph.add_node(
                name, self._chain.starting_at(name), input_schema=with_run_channels(self.state)
            )
        else:
            self._graph.add_node(name, wrapped, input_schema=with_run_channels(reads))

    def part(self, name: str, graph: "Graph") -> None:
        """Add another graph as a node. Keys that both states have are handed over and back."""
        self.declared.append((Graph.part, (name, graph)))
        if graph.input is None:
            check_shared(f"{self.name}.{name}", graph.state, self.state)
        elif graph.output is not None:  # reached by `Send`: it returns by its own keys alone
            check_keys(f"{self.name}.{name} returns", graph.output, self.state)
        self.parts[name] = graph
        self._inputs[name] = graph.input or graph.state
        self._graph.add_node(name, graph.compiled)

    def edge(self, source: str, target: str) -> None:
        self.declared.append((Graph.edge, (source, target)))
        self._note(source, target)
        self._chain.lead(source, target)
        self._graph.add_edge(source, target)

    def by_label(self, source: str, targets: Mapping[str, str]) -> None:
        """Add a conditional edge by the label that the node writes; its labels must be exactly the map's keys."""
        labels = self._labels.get(source, ())
        self.route(source, by_label(self.state, labels), targets)

    def route(self, source: str, router: Router, targets: Mapping[str, str]) -> None:
        """Add a conditional edge; the router's `Literal` labels must be exactly the map's keys.

        A router stands where more than one node's result decides. An empty label is the usual way, which nobody is
        told of.
        """
        self.declared.append((Graph.route, (source, router, targets)))
        labels = get_args(hints_of(router)["return"])
        if set(labels) != set(targets):
            raise SetupError(
                f"{self.name}: {router.__name__} returns {sorted(labels)}, its map has {sorted(targets)}."
            )
        for target in targets.values():
            self._note(source, target)
        reads = self._router_reads(router)
        wrapped = checked_router(router, reads, labels)
        self._chain.choose(source, wrapped, reads, targets)
        # A pure node goes its way itself, as far as the chain reaches; its edges stand here as they are declared.
        chosen = went_on if self._chain.goes_on(source) else wrapped
        self._graph.add_conditional_edges(source, chosen, {**targets})

    def fan_out(self, source: str, sender: Sender, target: str, otherwise: str | None = None) -> None:
        """Send each payload to `target`, side by side; with none, go to `otherwise`."""
        self.declared.append((Graph.fan_out, (source, sender, target, otherwise)))
        self._note(source, target)
        targets = [target]
        if otherwise is not None:
            self._note(source, otherwise)
            targets.append(otherwise)
        wrapped = checked_sender(sender, self._router_reads(sender), target, self._inputs[target], otherwise)
        self._graph.add_conditional_edges(source, wrapped, targets)

    def build(self) -> StateGraph[Any, Deps, Any, Any]:
        """The checked graph. Raises `SetupError` naming what is unreachable or can't end."""
        check_shape(self.name, set(self._inputs), self._edges)
        return self._graph

    @cached_property
    def compiled(self) -> Compiled:
        """As a part of other graphs: the same wherever it stands."""
        compiled = self.compile()
        takes_up(compiled)
        return compiled

    def compile(self, checkpointer: BaseCheckpointSaver[Any] | None = None) -> Compiled:
        """Check and compile; parts keep LangGraph's default persistence (`engine.md`)."""
        compiled: Any = self.build().compile(checkpointer=checkpointer, name=self.name)  # pyright: ignore[reportUnknownMemberType]
        for name, part in self.parts.items():
            given = with_run_channels(part.input or part.state)
            compiled.nodes[name].bound = Part(part._chain, part.compiled, given)
        return compiled

    def _note(self, source: str, target: str) -> None:
        for name in (source, target):
            if name not in (START, END) and name not in self._inputs:
                raise SetupError(f"{self.name}: edge {source!r} → {target!r} names no node {name!r}.")
        self._edges.setdefault(source, set()).add(target)

    def _router_reads(self, function: Callable[..., Any]) -> type:
        hints = dict(hints_of(function))
        reads = next(t for key, t in hints.items() if key != "return")
        check_keys(f"{self.name}: {function.__name__} reads", reads, self.state)
        return reads

    def _annotations(self, name: str, function: Node) -> tuple[type, type]:
        hints = dict(hints_of(function))
        try:
            writes = hints.pop("return")
            return next(iter(hints.values())), writes
        except (KeyError, StopIteration):
            raise SetupError(
                f"{self.name}.{name}: {function.__name__} needs annotations `(state: X, …) -> Y`."
            ) from None


@dataclass(frozen=True)
class Pipeline:
    """A workflow that people run by name."""

    name: str
    build: Callable[..., Graph]
    """Takes `depth` where its calls may start sub-agents."""
    input: type[WorkflowInput]
    output: type[WorkflowOutput]
    enter: Callable[[Any, WorkflowContext], dict[str, Any]] = field(kw_only=True)
    """The validated input → the graph's first state."""
    leave: Callable[[Mapping[str, Any], WorkflowContext], WorkflowOutput] = field(kw_only=True)
    """The final state → the output."""
    outcome: str = "status"
    """The state's key that says how it ended, `done` where that is empty: what `runs` lists."""
    follow_up: Callable[[Message | None, WorkflowContext], dict[str, Any]] | None = None
    """State that starts a further prompt, or with None another try at the last; absent: it takes none."""
    resumes_after_end: bool = True
    """A run that ended badly has something left to do when it is resumed."""
    prompt_field: str | None = None
    """The input field that the positional PROMPT fills (★)."""
    needs_model: bool = False
    """It can't do its work without a model: refused before it starts when there is no key. Others do what they can."""

    def validated(self, values: Mapping[str, Any]) -> WorkflowInput:
        """The typed input. Raises `InputError` naming the field and what was expected."""
        try:
            return self.input.model_validate(dict(values))
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"]) or "input"
            known = ", ".join(self.input.model_fields)
            hint = f" {self.input.__name__} has: {known}." if first["type"] == "extra_forbidden" else ""
            raise InputError(f"Input field {place!r}: {first['msg']}.{hint}", place) from error

    def compile(
        self, checkpointer: BaseCheckpointSaver[Any] | None = None, depth: int | None = None
    ) -> Compiled:
        """The compiled graph of a run: the workflow, and its session around it.

        It is declared once a process, which takes 60 ms. `depth`: levels of sub-agents.
        """
        return self.declared(depth).compile(checkpointer)

    def declared(self, depth: int | None = None) -> Graph:
        """What `compile` compiles."""
        nests = "depth" in signature(self.build).parameters
        return _rooted(self.build, depth if nests else None)


@cache
def _rooted(build: Callable[..., Graph], depth: int | None) -> Graph:
    from interlock.graphs._session import rooted

    graph: Any = (
        build() if depth is None else build(depth)
    )  # Any: a module that imports this one has its types twice
    root: Any = rooted(graph)
    return root
