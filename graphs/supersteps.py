"""supersteps: which nodes share a superstep of LangGraph, and how they run in one task.

Rule: `docs/internals.md#what-a-commit-waits-for`.

LangGraph runs a node, saves a checkpoint, and runs the next one. A graph names nodes that need no checkpoint between
them (`Graph.together`): where one leads to another one, that runs in the same task. The graph stays as declared and is
drawn that way. A kill repeats all nodes of the task; a request to stop ends it before its next node. All that decides
whether a node runs in the task of the one before it stands in `Wiring._next_node_in_task`.

LangGraph runs a `SuperstepTask` as each node. That asks the graph's `Wiring`, which runs the node, walks on as long as
it may (`_run_followers`), and returns the update of all nodes with the targets of the last one.

A graph that is a node of another one (`Subgraph`) begins in the task of that node, if it named START. If it doesn't
reach its end there, LangGraph runs the rest from the nodes that come next (`SuperstepProgress`). Where that graph
shares its superstep with other nodes, its own task gets the progress as a payload (`AT`, `DONE`).
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.runnables.config import var_child_runnable_config
from langgraph.config import get_config
from langgraph.graph import END, START
from langgraph.runtime import ExecutionInfo, Runtime, get_runtime
from langgraph.types import Send

from interlock.graphs.langgraph_internals import (
    has_checkpoint,
    initial_channel_values,
    read_channels,
    start_state_for_targets,
    write_update_and_targets,
)
from interlock.graphs.node_contract import Run, channel_types
from interlock.state.deps import Deps
from interlock.state.node import inner_task_id

_Reducers = Mapping[str, Callable[[Any, Any], Any]]
_Target = str | Send
"""What comes next: a node, which reads the state, or a node with a payload."""

AT = "__at__"
"""Key in the payload of a graph in progress: the nodes and payloads that come next."""
DONE = "__done__"
"""Key for what its nodes did so far, for the step log."""


class SuperstepProgress(NamedTuple):
    """How far a superstep got."""

    targets: Sequence[_Target]
    """The nodes and payloads that come next; empty: the graph is finished."""
    state: dict[str, Any]
    updates: Sequence[Mapping[str, Any]] = ()
    """What each node returned, in order."""

    def written_values(self) -> dict[str, Any]:
        """Return the keys that were written, with their values in the state."""
        return {key: self.state[key] for update in self.updates for key in update}


_Begin = Callable[[dict[str, Any], Runtime[Deps]], Awaitable[SuperstepProgress]]
"""Begins a graph within another node's task."""


class _WiredNode(NamedTuple):
    run: Run
    reducers: _Reducers
    """Reducers of the channels it writes; later nodes of the task read the reduced values."""
    begin: _Begin | None = None
    """Set for a graph."""

    def apply_update(self, state: dict[str, Any], update: Mapping[str, Any]) -> dict[str, Any]:
        both = self.reducers.keys() & update.keys() & state.keys()
        return {**state, **update, **{key: self.reducers[key](state[key], update[key]) for key in both}}


class Choice(NamedTuple):
    router: Callable[[dict[str, Any], Runtime[Deps]], Awaitable[str]]
    targets: Mapping[str, str]


class FanOut(NamedTuple):
    """Sends one payload per task, or names the next node if there is none."""

    sender: Callable[[dict[str, Any], Runtime[Deps]], Awaitable[list[Send] | str]]
    apart: Callable[[Any], bool]
    """Whether, in this state, even an only payload gets a task of its own."""


class Wiring:
    """The nodes of a graph, their outgoing edges, and which of them share a superstep."""

    def __init__(self) -> None:
        self._nodes: dict[str, _WiredNode] = {}
        self._ways: dict[str, list[str | Choice | FanOut]] = {}
        self._together: set[str] = set()
        self._joins: set[str] = set()

    def add_node(self, name: str, run: Run, reducers: _Reducers, begin: _Begin | None = None) -> None:
        self._nodes[name] = _WiredNode(run, reducers, begin)

    def add_edge(self, source: str, edge: str | Choice | FanOut) -> None:
        self._ways.setdefault(source, []).append(edge)

    def allow_shared_superstep(self, names: Sequence[str]) -> None:
        """Let these nodes share a superstep, if they follow each other."""
        self._together |= {*names}

    def mark_as_join(self, name: str) -> None:
        """Give a node that waits for branches a superstep of its own."""
        self._joins.add(name)

    def _can_share_superstep(self, name: str) -> bool:
        return name in self._together and name not in self._joins

    def _next_node_in_task(
        self,
        source: str,
        targets: Sequence[_Target],
        state: dict[str, Any],
        has_run: Set[str],
        written: Set[str],
        runtime: Runtime[Deps],
    ) -> str:
        """Return the node that runs next in the task of `source`; empty: the superstep ends here.

        It does if all of this holds:
        - it is the only one that comes next, and nobody has asked the run to stop;
        - its graph names it in `together`, and it waits for no branches (`join`);
        - it hasn't run in this task yet: each pass of a loop gets a checkpoint;
        - if it gets a payload, the state needn't be on disk before it (`apart` of `fan_out`);
        - it writes no channel with a reducer that is `written` already: LangGraph takes one value of a task.
        """
        if len(targets) != 1 or _is_stopping(runtime):
            return ""
        (target,) = targets
        name = target.node if isinstance(target, Send) else target
        if name in has_run or not self._can_share_superstep(name):
            return ""
        fans = [way for way in self._ways[source] if isinstance(way, FanOut) and isinstance(target, Send)]
        is_apart = any(way.apart(state) for way in fans)
        return "" if is_apart or self._nodes[name].reducers.keys() & written else name

    def node_function(self, name: str) -> Run:
        """Return what runs as the node."""
        return self._nodes[name].run

    async def run_task(
        self,
        node: str,
        state: dict[str, Any],
        runtime: Runtime[Deps],
        read_state: Callable[[], dict[str, Any]] | None,
    ) -> tuple[dict[str, Any], Sequence[_Target]]:
        """Run a task of LangGraph: the node, and those behind it that share its superstep. Return their update, and
        where they lead.

        `read_state`: reads the state, if the node got a payload; others may have got one beside it, so nothing follows
        it.
        """
        if node == START:
            return state, await self._next_targets(
                node, {**read_state(), **state} if read_state else state, runtime
            )
        update = await self._nodes[node].run(state, runtime)
        state = self._nodes[node].apply_update(read_state() if read_state else state, update)
        if read_state or not self._can_share_superstep(node):
            return update, await self._next_targets(node, state, runtime)
        reached = await self._run_followers(node, state, runtime, _runtime_for_same_task, {*update})
        return {**update, **{k: v for one in reached.updates for k, v in one.items()}}, reached.targets

    async def run_from_start(self, state: dict[str, Any], runtime: Runtime[Deps]) -> SuperstepProgress:
        """Run the graph from its START as far as it gets in the task of the node that it is."""
        if START in self._together:
            return await self._run_followers(START, state, runtime, _runtime_for_inner_task)
        return SuperstepProgress(
            [target for target in await self._next_targets(START, state, runtime) if target != END], state
        )

    async def _run_followers(
        self,
        last_node: str,
        state: dict[str, Any],
        runtime: Runtime[Deps],
        make_runtime: Callable[[Runtime[Deps], str], Runtime[Deps]],
        written_here: set[str] | None = None,
    ) -> SuperstepProgress:
        """Go on from a node that has run, while the only next one shares its superstep and hasn't run in it yet.

        `make_runtime`: returns the runtime of a node. `written_here`: keys of an update that LangGraph reduces, which
        takes one value of each; None: the caller takes the reduced values.
        """
        has_run, updates = {last_node}, list[Mapping[str, Any]]()
        targets = await self._next_targets(last_node, state, runtime)
        while name := self._next_node_in_task(
            last_node, targets, state, has_run, written_here or set(), runtime
        ):
            given = targets[0].arg if isinstance(targets[0], Send) else state
            node, here = self._nodes[name], make_runtime(runtime, name)
            reached = await self._run_in_current_task(name, given, here)
            if reached.targets:
                done = here.context.steps.detach_graph_steps(_execution_info(here).task_id)
                targets = [Send(name, {**given, **reached.state, AT: [*reached.targets], DONE: done})]
                break
            update = reached.updates[0]
            state = node.apply_update(state, update)
            updates.append(update)
            if written_here is not None:
                written_here |= update.keys()
            last_node = name
            has_run.add(last_node)
            targets = await self._next_targets(last_node, state, here)
        return SuperstepProgress([target for target in targets if target != END], state, updates)

    async def _run_in_current_task(
        self, name: str, state: dict[str, Any], runtime: Runtime[Deps]
    ) -> SuperstepProgress:
        """Run a node in the task of another one; of a graph, as much as it can there."""
        node = self._nodes[name]
        if node.begin is None:
            return SuperstepProgress((), state, [await node.run(state, runtime)])
        info, steps, started = _execution_info(runtime), runtime.context.steps, time.perf_counter()
        steps.record_start(info.task_id, info.checkpoint_ns, name, "")
        reached = await node.begin(state, runtime)
        if not reached.targets:
            steps.record_end(info.task_id, (time.perf_counter() - started) * 1000, [*reached.updates[0]])
        return reached

    async def _next_targets(
        self, source: str, state: dict[str, Any], runtime: Runtime[Deps]
    ) -> Sequence[_Target]:
        targets: list[_Target] = []
        for way in self._ways.get(source, ()):
            if isinstance(way, str):
                targets.append(way)
            elif isinstance(way, Choice):
                targets.append(way.targets[await way.router(state, runtime)])
            else:
                sent = await way.sender(state, runtime)
                targets += [sent] if isinstance(sent, str) else sent
        return targets


Replayed = Callable[[], dict[str, Any] | None]


class Subgraph:
    """A graph as a node of another. It is declared when a run first enters it, as many never are."""

    def __init__(
        self,
        build: Callable[[], Any],
        check: Callable[[Any], None],
        labels: tuple[str, ...] = (),
        replayed: Replayed | None = None,
    ) -> None:
        """`build`: makes the `Graph`. `check`: raises if it doesn't fit into its parent. `labels`: as a node's.

        `replayed`: returns the subgraph's recorded writes in a replay; None: run it.
        """
        self._build, self._check, self.labels = build, check, labels
        self._replayed = replayed or (lambda: None)

    @cached_property
    def graph(self) -> Any:
        graph = self._build()
        self._check(graph)
        return graph

    @property
    def compiled(self) -> Any:
        return self.graph.compiled

    @cached_property
    def _initial_values(self) -> Mapping[str, Any]:
        return initial_channel_values(self.compiled)

    @property
    def input_schema(self) -> type:
        return self.graph.input or self.graph.state

    async def run_as_node(self, state: dict[str, Any], _: Runtime[Deps]) -> dict[str, Any]:
        if (replayed := self._replayed()) is not None:
            return replayed
        config = get_config()
        compiled: Any = self.compiled
        inputs = {key: state[key] for key in channel_types(self.input_schema) if key in state}
        if has_checkpoint(config):
            return await self._drive_graph(inputs, config)
        reached = self._take_over_progress(state) or await self._run_first_superstep(
            inputs, get_runtime(Deps)
        )
        if not reached.targets:
            return self._output_update(reached)
        # Graphs that ran in its superstep have left keys of their own: drop them.
        state = {key: value for key, value in reached.state.items() if key in compiled.channels}
        return await self._drive_graph({**state, **start_state_for_targets(reached.targets)}, config)

    async def _run_first_superstep(self, inputs: dict[str, Any], runtime: Runtime[Deps]) -> SuperstepProgress:
        return await self.graph.wiring.run_from_start({**self._initial_values, **inputs}, runtime)

    async def _drive_graph(self, graph_input: dict[str, Any], config: Any) -> dict[str, Any]:
        """As `ainvoke`, which collects each node's update, too."""
        compiled: Any = self.compiled
        left: dict[str, Any] = {}
        keys = compiled.output_channels
        async for values in compiled.astream(graph_input, config, stream_mode="values", output_keys=keys):
            left = values
        return left

    def _take_over_progress(self, state: dict[str, Any]) -> SuperstepProgress | None:
        """Return its progress in the superstep of the node that sent the payload, if any."""
        if AT not in state:
            return None
        runtime = get_runtime(Deps)
        if state[DONE] and (info := runtime.execution_info):
            runtime.context.steps.attach_graph_steps(info.task_id, info.checkpoint_ns, state[DONE])
        return SuperstepProgress(state[AT], {**self._initial_values, **state})

    async def run_in_parent_task(self, state: dict[str, Any], runtime: Runtime[Deps]) -> SuperstepProgress:
        """Run it within another node's task, as far as it gets there."""
        if (replayed := self._replayed()) is not None:
            return SuperstepProgress((), state, [replayed])
        inputs = {key: state[key] for key in channel_types(self.input_schema) if key in state}
        reached = await self._run_first_superstep(inputs, runtime)
        return reached if reached.targets else SuperstepProgress((), state, [self._output_update(reached)])

    def _output_update(self, reached: SuperstepProgress) -> dict[str, Any]:
        outputs = self.compiled.output_channels
        return {key: value for key, value in reached.written_values().items() if key in outputs}

    def __getattr__(self, name: str) -> Any:
        """For LangGraph, which asks nested graphs of a waiting run for their state."""
        return getattr(self.compiled, name)


class SuperstepTask(Runnable[Any, Any]):
    """What LangGraph runs as a node, START included.

    It writes the update together with where it leads: LangGraph's own branches would read the state again, and wrap
    every router in a task.
    """

    def __init__(self, wiring: Wiring, name: str, channels: Set[str], *, sent: bool) -> None:
        """`sent`: its input is a payload or the graph's input, not the state."""
        self._wiring, self.node, self._channels, self._sent = wiring, name, channels, sent

    @property
    def function(self) -> Run:
        return self._wiring.node_function(self.node)

    def invoke(self, input: Any, config: RunnableConfig | None = None, **_: Any) -> Any:
        raise NotImplementedError("Graphs are driven by `ainvoke`.")

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **_: Any) -> Any:
        config = config or {}

        def read() -> dict[str, Any]:
            return read_channels(config, self._channels)

        # LangGraph saves a new graph's checkpoint in a task of asyncio's. Let that go first: after a kill, a node's
        # work is found again by its task, which the checkpoint names.
        await asyncio.sleep(0)
        token = var_child_runnable_config.set(config)  # read by `interrupt` and `get_runtime`
        try:
            runtime = get_runtime(Deps)
            given = read if self._sent or AT in input else None
            update, targets = await self._wiring.run_task(self.node, input, runtime, given)
        finally:
            var_child_runnable_config.reset(token)
        kept = {key: value for key, value in update.items() if key in self._channels}
        write_update_and_targets(config, kept, [target for target in targets if target != END])
        return update


class DrawnBranch(Runnable[Any, Any]):
    """A conditional edge as LangGraph draws it; at run time `Task` evaluates it."""

    def __init__(self, name: str, *, sends: bool = False) -> None:
        self.name, self.sends = name, sends

    def invoke(self, input: Any, config: Any = None, **_: Any) -> Any:
        raise NotImplementedError("Nodes take their ways themselves.")


def _runtime_for_inner_task(runtime: Runtime[Deps], name: str) -> Runtime[Deps]:
    """Return the runtime for a node of a graph that runs in the task of the node that it is."""
    info = _execution_info(runtime)
    task = inner_task_id(info.task_id)
    return _with_execution_info_and_writer(
        runtime, replace(info, task_id=task, checkpoint_ns=f"{info.checkpoint_ns}|{name}:{task}")
    )


def _runtime_for_same_task(runtime: Runtime[Deps], name: str) -> Runtime[Deps]:
    """Return the runtime for a node that shares the task of one before it."""
    info = _execution_info(runtime)
    around, bar, own = info.checkpoint_ns.rpartition("|")
    namespace = f"{around}{bar}{name}:{own.partition(':')[2]}"
    return _with_execution_info_and_writer(runtime, replace(info, checkpoint_ns=namespace))


def _with_execution_info_and_writer(runtime: Runtime[Deps], info: ExecutionInfo) -> Runtime[Deps]:
    """Return it with the writer that the node needs (`contract`), so that it need not be copied again."""
    return runtime.override(execution_info=info, stream_writer=runtime.context.emit)


def _execution_info(runtime: Runtime[Deps]) -> ExecutionInfo:
    assert runtime.execution_info is not None, "LangGraph gives one to every node"
    return runtime.execution_info


def _is_stopping(runtime: Runtime[Deps]) -> bool:
    return runtime.control is not None and runtime.control.drain_requested
