"""_pipeline: a `StateGraph` that rejects, at build and at run time, what LangGraph silently accepts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from inspect import signature
from itertools import pairwise
from typing import Any, cast, get_args

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from pydantic import ValidationError

from interlock.graphs._contract import (
    Contract,
    branches_of,
    channels_of,
    check_branches,
    check_engines_channels,
    check_joins,
    check_keys,
    check_named,
    check_shape,
    check_shared,
    checked_node,
    checked_router,
    checked_sender,
    hints_of,
    label,
    loop_in,
    of_types,
    reducer_of,
    with_run_channels,
)
from interlock.graphs._fusing import Branch, Choice, Fan, Task, Wiring
from interlock.graphs._langgraph import driven, is_graph, run_tasks, starts_anywhere
from interlock.graphs._subgraph import Node, Replayed, Subgraph, langgraph_part
from interlock.state.deps import Deps
from interlock.state.errors import RunError, SetupError
from interlock.state.messages import Message
from interlock.state.node import spec_of
from interlock.state.run import WorkflowInput, WorkflowOutput, input_error
from interlock.state.text import clean, first_fault, json_text
from interlock.state.workflow import WorkflowContext

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
    labels: tuple[str, ...] = ()
    """Values it may leave in `label`; its parent maps them like a node's."""
    asks: bool = False
    """It always stops for a person, so a loop through it needs no other bound."""
    needs: tuple[str, ...] = ()
    """Keys that a parent's state must have."""
    subgraphs: dict[str, Subgraph] = field(default_factory=dict[str, Subgraph], init=False)

    def __post_init__(self) -> None:
        check_engines_channels(self.name, self.state)
        self.wiring = Wiring()
        self.declared: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        """Every declaration, in order; `rooted` rebuilds the graph from them."""
        self._contracts: dict[str, Contract | Subgraph] = {}
        self._edges: dict[str, set[str]] = {}
        self._branches: list[tuple[str, Branch, Mapping[str, str]]] = []
        self._plain: list[tuple[str, str]] = []
        self._sent: set[str] = {START}
        self.joins: dict[str, tuple[str, ...]] = {}
        """Nodes that wait for all branches → the branches' last nodes."""
        self.bounds: set[str] = set()
        """Nodes that limit the passes of a loop, or always stop for a person."""

    def node(self, name: str, function: Node) -> None:
        """Add a node; its reads and writes are declared with it (`state/node.py`) and enforced at run time."""
        self.declared.append((Graph.node, (name, function)))
        where = f"{self.name}.{name}"
        if spec := spec_of(function):
            check_named(f"{where} reads", self.state, spec.reads)
            check_named(f"{where} writes", self.state, spec.writes)
            contract = Contract(self.name, name, self.state, spec.reads, spec.writes, spec.labels)
        else:
            reads, writes = self._annotations(name, function)
            check_keys(f"{where} reads", reads, self.state)
            check_keys(f"{where} writes", writes, self.state)
            contract = Contract(self.name, name, self.state, (*hints_of(reads),), (*hints_of(writes),))
        self._contracts[name] = contract
        fusable, memoized = (spec.fusable, spec.memoized) if spec else (False, False)
        self.wiring.add(
            name, checked_node(function, contract), contract.reducers, fusable=fusable, memoized=memoized
        )

    def nodes(self, *functions: Node) -> None:
        """Add nodes under their functions' names."""
        for function in functions:
            self.node(function.__name__, function)

    def subgraph(
        self,
        name: str,
        graph: "Graph | Callable[[], Graph] | Any",
        fusable: bool = False,
        nondeterministic: bool = False,
        replayed: Replayed | None = None,
    ) -> None:
        """Add another graph as a node; a function that builds it is called when a run first enters it.

        Keys of both states are passed in and back. `fusable`: it has only fusable nodes and graphs. `nondeterministic`,
        if nothing inside calls a model: as for a node. A `StateGraph` becomes one node, which can't `interrupt`.
        """
        where = f"{self.name}.{name}"
        if is_graph(graph):
            return self.node(name, langgraph_part(where, graph, self.state))
        self.declared.append((Graph.subgraph, (name, graph, fusable, nondeterministic, replayed)))

        def check(graph: Graph) -> None:
            check_named(f"{where} is given", self.state, graph.needs)
            if graph.input is None:
                check_shared(where, graph.state, self.state)
            elif graph.output is not None:  # reached by `Send`: it returns its output keys only
                check_keys(f"{where} returns", graph.output, self.state)
            if fusable and (others := graph.wiring.unfusable()):
                raise SetupError(f"{where} is declared as fusable, but {others} of {graph.name!r} are not.")

        # Any: the type checker sees this module's own types twice.
        build: Any = (lambda: graph) if isinstance(graph, Graph) else graph
        labels = graph.labels if isinstance(graph, Graph) else ()
        if isinstance(graph, Graph):
            check(graph)
            self.bounds |= {name} if graph.asks else set()
        subgraph = Subgraph(build, cast(Any, check), labels, replayed)
        self.subgraphs[name] = self._contracts[name] = subgraph
        reducers = Contract(self.name, name, self.state, (), (*channels_of(self.state),)).reducers
        self.wiring.add_graph(name, subgraph.run, subgraph.whole, reducers, fusable=fusable)

    def edge(self, source: str, target: str, *more: str) -> None:
        """Add an edge, and one from each node to the next; several from one node start parallel branches."""
        for pair in pairwise((source, target, *more)):
            self.declared.append((Graph.edge, pair))
            self._note(*pair)
            self._plain.append(pair)
            self.wiring.lead(*pair)

    def join(self, sources: Sequence[str], target: str) -> None:
        """Add an edge from each source: `target` runs once, when all branches have finished."""
        self.declared.append((Graph.join, (sources, target)))
        for source in sources:
            self._note(source, target)
            self._plain.append((source, target))
            self.wiring.lead(source, target)
        self.joins[target] = (*sources,)
        self.wiring.wait_at(target)

    def by_label(self, source: str, targets: Mapping[str, str]) -> None:
        """Add a conditional edge on the label the node or subgraph writes; its labels must be the map's keys."""
        labels = self._contracts[source].labels if source in self._contracts else ()
        self.choose(source, label, ("label",), labels, targets)

    def route(self, source: str, router: Router, targets: Mapping[str, str]) -> None:
        """Add a conditional edge; the router's `Literal` labels must be exactly the map's keys.

        Use a router if more than one node's result decides. An empty label is the default path, which isn't logged.
        """
        labels = get_args(self._hints(router).get("return"))
        self.choose(source, router, self._reads(router), labels, targets)

    def choose(
        self,
        source: str,
        router: Router,
        reads: Sequence[str],
        labels: Sequence[str],
        targets: Mapping[str, str],
    ) -> None:
        """`route` for a function without annotations: the caller passes what it reads and returns."""
        self.declared.append((Graph.choose, (source, router, reads, labels, targets)))
        if set(labels) != set(targets):
            raise SetupError(
                f"{self.name}: {router.__name__} returns {sorted(labels)}, its map has {sorted(targets)}."
            )
        for target in targets.values():
            self._note(source, target)
        self.wiring.lead(source, Choice(checked_router(router, reads, labels), targets))
        self._branches.append((source, self._branch(source, router.__name__), targets))

    def _branch(self, source: str, name: str, *, sends: bool = False) -> Branch:
        """LangGraph requires distinct names for a node's branches."""
        taken = [branch.name for start, branch, _ in self._branches if start == source]
        return Branch(f"{name}_{len(taken) + 1}" if name in taken else name, sends=sends)

    def fan_out(
        self,
        source: str,
        sender: Sender,
        target: str,
        otherwise: str | None = None,
        one_inline: bool = False,
        again: Callable[[Any], bool] | None = None,
    ) -> None:
        """Send each payload to `target`, in parallel; without any, go to `otherwise`.

        `one_inline`: a graph that gets the only payload of a fusable node runs in that node's superstep as far as it
        gets, then in a task of its own. `again`: whether, in this state, it may also run in the superstep in which this
        graph started, where a kill would make the payload again too.
        """
        self.declared.append((Graph.fan_out, (source, sender, target, otherwise, one_inline, again)))
        targets = [target] if otherwise is None else [target, otherwise]
        for name in targets:
            self._note(source, name)
        self._sent.add(target)
        sends = checked_sender(sender, self._reads(sender), target, self._payload(target), otherwise)
        inline = one_inline if isinstance(self._contracts.get(target), Subgraph) else False
        self.wiring.lead(source, Fan(sends, inline, again))
        branch = self._branch(source, getattr(sender, "__name__", "sender"), sends=True)
        self._branches.append((source, branch, {name: name for name in targets}))

    def build(self) -> StateGraph[Any, Deps, Any, Any]:
        """Check and return the graph. Raises `SetupError` naming what is unreachable or can't end."""
        check_shape(self.name, set(self._contracts), self._edges)
        check_joins(self.name, self.joins, self._edges)
        for target, sources in self.joins.items():
            check_branches(self.name, branches_of(sources, target, self._edges), self._plain_keys)
        return self._graph

    def _plain_keys(self, name: str) -> set[str]:
        """Keys a node writes without a reducer; for a subgraph, all shared keys."""
        if (contract := self._contracts.get(name)) is None:
            return set()
        if isinstance(contract, Contract):
            written = {*contract.writes}
        else:
            written = {*channels_of(contract.graph.output or contract.graph.state)}
        known = channels_of(self.state)
        return {key for key in written if key in known and not reducer_of(known[key])}

    def unbounded(self) -> list[str]:
        """Nodes that could loop for ever."""
        return loop_in(
            {node: targets - self.bounds for node, targets in self._edges.items()}, self._contracts
        )

    @cached_property
    def _graph(self) -> Any:  # Any: the overloads of `add_node` aren't fully typed
        input_schema = with_run_channels(self.input or self.state)
        made: Any = StateGraph  # its types aren't all known
        graph = made(
            with_run_channels(self.state),
            context_schema=Deps,
            input_schema=input_schema,
            output_schema=self.output,
        )
        channels = channels_of(self.state).keys() | channels_of(self.input or self.state).keys()
        for name in self._contracts:
            task = Task(self.wiring, name, channels, sent=name in self._sent)
            graph.add_node(name, task, defer=name in self.joins)
        for source, target in self._plain:
            graph.add_edge(source, target)
        for source, branch, targets in self._branches:
            graph.add_conditional_edges(source, branch, {**targets})
        return graph

    @cached_property
    def compiled(self) -> Compiled:
        """Compiled for use as a subgraph: the same in every parent."""
        compiled = self.compile()
        starts_anywhere(compiled)
        return compiled

    def compile(self, checkpointer: BaseCheckpointSaver[Any] | None = None) -> Compiled:
        """Check and compile; subgraphs keep LangGraph's default persistence."""
        # docs/internals.md#parts-of-a-graph
        compiled: Any = self.build().compile(checkpointer=checkpointer, name=self.name)  # pyright: ignore[reportUnknownMemberType]
        start = Task(self.wiring, START, channels_of(self.input or self.state).keys(), sent=True)
        run_tasks(compiled, start, self.subgraphs)
        return compiled

    def _note(self, source: str, target: str) -> None:
        for name in (source, target):
            if name not in (START, END) and name not in self._contracts:
                raise SetupError(f"{self.name}: edge {source!r} → {target!r} names no node {name!r}.")
        self._edges.setdefault(source, set()).add(target)

    def _payload(self, target: str) -> Callable[[], tuple[type, tuple[str, ...]]]:
        contract = self._contracts[target]
        if isinstance(contract, Contract):
            return lambda: (contract.state, contract.reads)
        return lambda: (contract.input_schema, (*hints_of(contract.input_schema),))

    def _reads(self, function: Callable[..., Any]) -> tuple[str, ...]:
        reads = next((t for key, t in self._hints(function).items() if key != "return"), None)
        if reads is None:
            raise self._untyped(function)
        check_keys(f"{self.name}: {function.__name__} reads", reads, self.state)
        return (*hints_of(reads),)

    def _hints(self, function: Callable[..., Any]) -> Mapping[str, Any]:
        try:
            return hints_of(function)
        except TypeError:  # no function of its own, such as a partial
            raise self._untyped(function) from None

    def _untyped(self, function: Any) -> SetupError:
        name = getattr(function, "__name__", repr(function))
        return SetupError(
            f"{self.name}: {'a lambda' if name == '<lambda>' else name} says nothing of the state that it reads and of "
            "what it returns. Write a function with annotations, whose argument is a TypedDict of the keys that it "
            "reads: def each(state: Reads) -> list[Payload]."
        )

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
    """A workflow that users run by name."""

    name: str
    build: Callable[..., Graph]
    """Takes `depth` if its calls may start sub-agents."""
    input: type[WorkflowInput]
    output: type[WorkflowOutput]
    enter: Callable[[Any, WorkflowContext], dict[str, Any]] = field(kw_only=True, default=cast(Any, None))
    """Maps the validated input to the initial state. Default: the input's own fields, plus the run's `model`,
    `approval_mode` and limits if the state has these keys.
    """
    leave: Callable[[Mapping[str, Any], WorkflowContext], WorkflowOutput] = field(
        kw_only=True, default=cast(Any, None)
    )
    """Maps the final state to the output. Default: the keys they share."""
    summary: str = ""
    """One line; a workflow file without one uses the first line of its docstring."""
    outcome: str = "status"
    """State key that says how it ended, for `runs`; empty means `done`."""
    follow_up: Callable[[Message | None, WorkflowContext], dict[str, Any]] | None = None
    """State for a further prompt or, with None, for retrying the last; absent: not supported."""
    prompt_field: str | None = None
    """Input field that the positional PROMPT fills (★)."""
    hands_over_to: str = ""
    """Output field that names the run that carries on its work; the engine drives that run next."""
    notes: tuple[str, ...] = ()
    """Warnings that a run begins with."""
    needs_model: bool = False
    """Requires a model: refused before it starts without a key. Others do what they can."""

    @property
    def continues(self) -> bool:
        """Whether a run can go on after its end."""
        return self.follow_up is not None

    def __post_init__(self) -> None:
        if cast(Any, self.enter) is None:
            object.__setattr__(self, "enter", self._entered)
        if cast(Any, self.leave) is None:
            object.__setattr__(self, "leave", self._left)

    def _entered(self, input: WorkflowInput, context: WorkflowContext) -> dict[str, Any]:
        known = channels_of(self.declared().state)
        of_run = {
            "model": context.model,
            "approval_mode": context.approval_mode,
            "max_turns": context.limits.max_turns,
            "max_session_turns": context.limits.max_session_turns,
        }
        own: dict[str, Any] = input.model_dump(mode="json", exclude=set(WorkflowInput.model_fields))
        return {**{key: value for key, value in of_run.items() if key in known}, **own}

    def _left(self, values: Mapping[str, Any], context: WorkflowContext) -> WorkflowOutput:  # noqa: ARG002 - its shape
        try:
            return self.output.model_validate({k: values[k] for k in self.output.model_fields if k in values})
        except ValidationError as error:
            fault = ": ".join(first_fault(error))
            ended = f"it ended with {sorted(values)} in its state."
            raise RunError(f"The output of {self.name!r}: {fault}; {ended}") from error

    def validated(self, values: Mapping[str, Any] | WorkflowInput) -> WorkflowInput:
        """The typed input, with valid Unicode. Raises `InputError` naming the field and what was expected."""
        if isinstance(values, WorkflowInput):
            return values
        given = {name: clean(value) if isinstance(value, str) else value for name, value in values.items()}
        try:
            return self.input.model_validate(given)
        except ValidationError as error:
            raise input_error(self.name, self.input, error) from error

    @property
    def takes_any_value(self) -> bool:
        """Whether an input needn't be an object: a LangGraph graph may take a list or a number."""
        return False

    def doubts(self, input: WorkflowInput) -> list[str]:  # noqa: ARG002 - a LangGraph graph has some
        """What of an input the workflow ignores, in a line each."""
        return []

    def started(self, first: dict[str, Any]) -> Any:
        """What its graph begins with, of the JSON that its run's row holds."""
        return of_types(self.declared().state, first)

    def title(self, input: WorkflowInput) -> str:
        """What lists call a run with this input: its prompt, else what else was given, else the workflow."""
        if self.prompt_field and (prompt := getattr(input, self.prompt_field)):
            return _in_words(prompt)
        given = input.model_dump(exclude=set(WorkflowInput.model_fields), exclude_defaults=True)
        parts = [name if value is True else _in_words(value) for name, value in given.items()]
        return " · ".join(filter(None, parts)) or self.name

    async def advance(self, app: Any, graph_input: Any, config: Any, deps: Deps, control: Any) -> None:
        """Drive its compiled graph until nothing is due."""
        await driven(app, graph_input, config, context=deps, durability="sync", control=control)

    def compile(
        self, checkpointer: BaseCheckpointSaver[Any] | None = None, depth: int | None = None
    ) -> Compiled:
        """The compiled graph of a run: the workflow wrapped in its session. `depth`: levels of sub-agents."""
        return self.declared(depth).compile(checkpointer)

    def declared(self, depth: int | None = None) -> Graph:
        """The declaration that `compile` compiles."""
        from interlock.graphs._additions import rooted_of

        nests = "depth" in signature(self.build).parameters
        return cast(Any, rooted_of(cast(Any, self.build), depth if nests else None))  # as in `subgraph`


def _in_words(value: Any) -> str:
    """An input as a part of a title: of a conversation its last message, of calls and parts their names or texts."""
    match value:
        case str():
            return value
        case {"role": _, "content": content}:
            return _in_words(content)
        case [*_, {"role": _} as last]:
            return _in_words(last)
        case [{}, *_]:
            return ", ".join(map(_in_words, cast("list[Any]", value)))
        case {"text": str(text)} | {"name": str(text)} | {"type": str(text)}:
            return text
        case _:
            return json_text(value)
