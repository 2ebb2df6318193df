"""_fusing: what LangGraph runs as a node: the node, its outgoing edges, and fusable nodes behind it.

Rule: `docs/internals.md#what-a-commit-waits-for`.

The graph stays as declared and is drawn that way; at run time a fusable node runs straight on to the next one if that
is fusable too. A kill repeats the whole chain; a stop request ends it before its next node. The update and the outgoing
edges are written together: LangGraph's own branches would re-read the state and wrap every router in a task.

A nested graph starts as a chain in the superstep of its own node. It may run one memoized node there, whose work is
found again after a kill. If that doesn't reach its end, LangGraph continues it from the nodes reached, or with the
payloads sent. A graph declared fusable, because all its nodes are, shares a superstep with its neighbours if it reaches
its end this way; otherwise it restarts in a task of its own. A graph that got a fusable node's only payload
(`one_inline`) moves to a task of its own too, but takes its progress along in the payload.
"""

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any, NamedTuple

from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.runnables.config import var_child_runnable_config
from langgraph.graph import END, START
from langgraph.runtime import ExecutionInfo, Runtime, get_runtime
from langgraph.types import Send

from interlock.graphs._langgraph import reads, writes
from interlock.state.deps import Deps
from interlock.state.node import inside

Run = Callable[[dict[str, Any], Runtime[Deps]], Awaitable[dict[str, Any]]]
"""A node: maps the whole state, or a payload, to an update."""
_Reducers = Mapping[str, Callable[[Any, Any], Any]]


class _Node(NamedTuple):
    run: Run
    reducers: _Reducers
    """Reducers of the channels it writes; later nodes of the chain read the reduced values."""
    fusable: bool
    memoized: bool
    """Its work is memoized, and found again after a kill."""
    whole: Run | None = None
    """For a graph: runs it completely within another node's superstep. Raises `Halted`."""

    def applied(self, state: dict[str, Any], update: Mapping[str, Any]) -> dict[str, Any]:
        both = self.reducers.keys() & update.keys() & state.keys()
        return {**state, **update, **{key: self.reducers[key](state[key], update[key]) for key in both}}


class Choice(NamedTuple):
    router: Callable[[dict[str, Any], Runtime[Deps]], Awaitable[str]]
    targets: Mapping[str, str]


class Fan(NamedTuple):
    """Sends one payload per task, or names the next node if there is none."""

    sender: Callable[[dict[str, Any], Runtime[Deps]], Awaitable[list[Send] | str]]
    one_inline: bool
    """A graph that receives the only payload may share its sender's superstep."""
    again: Callable[[Any], bool] | None
    """Whether that also holds in this state if what led to the payload isn't persisted: a kill repeats all of it."""


_Target = str | Send

AT = "__at__"
"""Key in the payload of a graph in progress: the nodes and payloads that come next."""
DONE = "__done__"
"""Key for what its nodes did so far, for the step log."""


class Wiring:
    """The nodes of a graph, and their outgoing edges."""

    def __init__(self) -> None:
        self._nodes = {START: _Node(_as_it_is, {}, False, False)}
        self._ways: dict[str, list[str | Choice | Fan]] = {}

    def add(
        self, name: str, run: Run, reducers: _Reducers, *, fusable: bool = False, memoized: bool = False
    ) -> None:
        self._nodes[name] = _Node(run, reducers, fusable, memoized)

    def add_graph(self, name: str, run: Run, whole: Run, reducers: _Reducers, *, fusable: bool) -> None:
        self._nodes[name] = _Node(run, reducers, fusable, memoized=False, whole=whole)

    def wait_at(self, name: str) -> None:
        """Give it its own superstep after all branches, shared with none of them."""
        self._nodes[name] = self._nodes[name]._replace(fusable=False, memoized=False, whole=None)

    def unfusable(self) -> list[str]:
        return [name for name, node in self._nodes.items() if not node.fusable and name != START]

    def function(self, name: str) -> Run:
        """What runs as the node."""
        return self._nodes[name].run

    def lead(self, source: str, way: str | Choice | Fan) -> None:
        self._ways.setdefault(source, []).append(way)

    async def run(
        self,
        at: str,
        state: dict[str, Any],
        runtime: Runtime[Deps],
        read: Callable[[], dict[str, Any]] | None,
    ) -> tuple[dict[str, Any], Sequence[_Target]]:
        """Run the node and the fusable ones that follow it; return their update, and where they lead.

        `read`: reads the state, if the node got a payload; the chain ends after such a node.
        """
        update: dict[str, Any] = {}
        seen = {at}
        while True:
            node = self._nodes[at]
            try:
                first = len(seen) == 1
                written = await self._done(at, state, runtime if first else _renamed(runtime, at), first)
            except Halted:
                self._undo(runtime)
                return update, [at]
            update |= written
            state = node.applied(read() if read else state, written)
            targets = await self._targets(at, state, runtime)
            following = None
            if node.fusable and not read:
                if lone := self._lone(at, targets, update, seen):
                    try:
                        written = await self._done(lone.node, lone.arg, _renamed(runtime, lone.node))
                    except Halted as halted:
                        return update, [self._handed_on(lone, halted, runtime)]
                    update |= written
                    state = self._nodes[lone.node].applied(state, written)
                    targets = await self._targets(lone.node, state, runtime)
                following = self._following(targets, update)
            if following is None or following in seen or _must_stop(runtime):
                return update, targets
            at = following
            seen.add(at)

    async def _targets(self, source: str, state: dict[str, Any], runtime: Runtime[Deps]) -> Sequence[_Target]:
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

    def _following(self, targets: Sequence[_Target], written: Mapping[str, Any]) -> str | None:
        """The only next node, if it is fusable and none of its reducer channels was written in this superstep."""
        if len(targets) != 1 or not isinstance(targets[0], str):
            return None
        node = self._nodes.get(targets[0])
        follows = node is not None and node.fusable and not node.reducers.keys() & written.keys()
        return targets[0] if follows else None

    def _lone(
        self, at: str, targets: Sequence[_Target], written: Mapping[str, Any], seen: Set[str]
    ) -> Send | None:
        """The only payload, if its graph may share this superstep and none of its reducer channels was written here."""
        if len(targets) != 1 or not isinstance(targets[0], Send):
            return None
        node = self._nodes[targets[0].node]
        may = any(isinstance(way, Fan) and way.one_inline for way in self._ways[at])
        first = all(self._nodes[name].whole is None for name in seen)
        return targets[0] if may and first and not node.reducers.keys() & written.keys() else None

    def _handed_on(self, sent: Send, halted: "Halted", runtime: Runtime[Deps]) -> Send:
        """The payload for a halted graph's own task, with its progress, so that nothing is repeated."""
        info = runtime.execution_info
        done = runtime.context.steps.handed_on(info.task_id) if info else []
        return Send(sent.node, {**sent.arg, **halted.state, AT: [*halted.targets], DONE: done})

    def _undo(self, runtime: Runtime[Deps]) -> None:
        """Drop a halted graph's notes, as it restarts in a task of its own."""
        if info := runtime.execution_info:
            runtime.context.steps.undone(info.task_id)

    async def begun(self, state: dict[str, Any], runtime: Runtime[Deps]) -> "Begun":
        """Run the graph as far as it gets without a superstep of its own."""
        written: dict[str, Any] = {}
        seen, memoized = {START}, False
        at, targets = START, await self._targets(START, state, runtime)
        while (target := self._next(at, targets, state, seen, memoized)) and not _must_stop(runtime):
            at, payload = (target.node, target.arg) if isinstance(target, Send) else (target, state)
            node, within = self._nodes[at], _within(runtime, at)
            try:
                update = await self._done(at, payload, within)
            except Halted as halted:
                if isinstance(target, Send):
                    targets = [self._handed_on(target, halted, within)]
                else:
                    self._undo(within)
                break
            state = node.applied(state, update)
            written |= {key: state[key] for key in update}
            seen.add(at)
            memoized = memoized or not node.fusable
            targets = await self._targets(at, state, within)
        return Begun([target for target in targets if target != END], state, written)

    def _next(
        self, at: str, targets: Sequence[_Target], state: dict[str, Any], seen: Set[str], memoized: bool
    ) -> _Target | None:
        """What a graph that has just started continues with."""
        if len(targets) != 1:
            return None
        target = targets[0]
        if isinstance(target, Send):
            ways = (way for way in self._ways[at] if isinstance(way, Fan))
            return target if any(w.one_inline and (not w.again or w.again(state)) for w in ways) else None
        node = None if target in seen else self._nodes.get(target)
        return target if node and (node.fusable or (node.memoized and not memoized)) else None

    async def _done(
        self, name: str, state: dict[str, Any], runtime: Runtime[Deps], first: bool = False
    ) -> dict[str, Any]:
        """Run the node and return its update. `first`: it is the chain's first, so LangGraph may continue a graph."""
        node, info, started = self._nodes[name], runtime.execution_info, time.perf_counter()
        if node.whole is None or info is None or (first and not node.fusable):
            return await node.run(state, runtime)
        steps = runtime.context.steps
        steps.started(info.task_id, info.checkpoint_ns, name, "")
        written = await (node.run if first else node.whole)(state, runtime)
        steps.ended(info.task_id, (time.perf_counter() - started) * 1000, [*written])
        return written


class Halted(Exception):  # noqa: N818 - a message between chains
    """A graph sharing a superstep can't reach its end in it."""

    def __init__(self, state: dict[str, Any], targets: "Sequence[_Target]") -> None:
        """The graph's progress: its state, and what comes next."""
        super().__init__(targets)
        self.state, self.targets = state, targets


async def _as_it_is(state: dict[str, Any], _: Runtime[Deps]) -> dict[str, Any]:
    return state


class Begun(NamedTuple):
    """How far a graph got without a superstep of its own."""

    targets: Sequence[_Target]
    """The nodes and payloads that come next; empty: it is finished."""
    state: dict[str, Any]
    written: dict[str, Any]


class Task(Runnable[Any, Any]):
    """What LangGraph runs as a node, START included."""

    def __init__(self, wiring: Wiring, name: str, channels: Set[str], *, sent: bool) -> None:
        """`sent`: its input is a payload or the graph's input, not the state."""
        self._wiring, self._node, self._channels, self._sent = wiring, name, channels, sent

    @property
    def function(self) -> Run:
        return self._wiring.function(self._node)

    def invoke(self, input: Any, config: RunnableConfig | None = None, **_: Any) -> Any:
        raise NotImplementedError("Graphs are driven by `ainvoke`.")

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **_: Any) -> Any:
        config = config or {}

        def read() -> dict[str, Any]:
            return reads(config, self._channels)

        token = var_child_runnable_config.set(config)  # read by `interrupt` and `get_runtime`
        try:
            runtime = get_runtime(Deps)
            update, targets = await self._wiring.run(self._node, input, runtime, read if self._sent else None)
        finally:
            var_child_runnable_config.reset(token)
        kept = {key: value for key, value in update.items() if key in self._channels}
        writes(config, kept, [target for target in targets if target != END])
        return update


class Branch(Runnable[Any, Any]):
    """A conditional edge as LangGraph draws it; at run time `Task` evaluates it."""

    def __init__(self, name: str, *, sends: bool = False) -> None:
        self.name, self.sends = name, sends

    def invoke(self, input: Any, config: Any = None, **_: Any) -> Any:
        raise NotImplementedError("Nodes take their ways themselves.")


def _within(runtime: Runtime[Deps], name: str) -> Runtime[Deps]:
    """The runtime for a node of a graph that runs in the superstep of its own node."""
    info = runtime.execution_info
    if info is None:
        return runtime
    task = inside(info.task_id)
    return _moved(runtime, replace(info, task_id=task, checkpoint_ns=f"{info.checkpoint_ns}|{name}:{task}"))


def _renamed(runtime: Runtime[Deps], name: str) -> Runtime[Deps]:
    """The runtime for a node that shares the superstep of one before it."""
    info = runtime.execution_info
    if info is None:
        return runtime
    around, bar, own = info.checkpoint_ns.rpartition("|")
    namespace = f"{around}{bar}{name}:{own.partition(':')[2]}"
    return _moved(runtime, replace(info, checkpoint_ns=namespace))


def _moved(runtime: Runtime[Deps], info: ExecutionInfo) -> Runtime[Deps]:
    """With the writer that the node needs (`_contract`), so that it need not be copied again."""
    return runtime.override(execution_info=info, stream_writer=runtime.context.emit)


def _must_stop(runtime: Runtime[Deps]) -> bool:
    return runtime.control is not None and runtime.control.drain_requested
