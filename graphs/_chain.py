"""_chain: what LangGraph runs as a node: the node, its way on, and pure nodes that follow it (`engine.md` 23).

The graph stays as it is declared, and is drawn so; at run time a pure node runs on to the next one, as long as that is
pure, too. A kill repeats the whole chain, a request to stop ends it before its next node. Update and way on are
written at once: LangGraph's own branches would read the state anew and wrap every router in a task.

A graph inside another begins as a chain in the superstep of the node that it is, and one node of it may do what is
recorded and found again. Where that doesn't lead to its end, LangGraph takes it on from the nodes that were reached, or
with the payloads that were sent. One that is declared as pure, as all of its nodes are, shares a superstep with its
neighbours like any pure node, if it comes to its end this way; else it begins anew in a task of its own. So does one
that a pure node sent its only payload to (`one_inline`), which is handed on in that payload as far as it has come.
"""

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any, NamedTuple

from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.runnables.config import var_child_runnable_config
from langgraph.graph import END, START
from langgraph.pregel._read import ChannelRead
from langgraph.pregel._write import ChannelWrite, ChannelWriteEntry
from langgraph.runtime import Runtime, get_runtime
from langgraph.types import Send

from interlock.state.deps import Deps
from interlock.state.run import inside

Run = Callable[[dict[str, Any], Runtime[Deps]], Awaitable[dict[str, Any]]]
"""A node: the whole state, or a payload, to an update."""
_Reducers = Mapping[str, Callable[[Any, Any], Any]]


class _Node(NamedTuple):
    run: Run
    reducers: _Reducers
    """Of the channels that it writes; what follows reads what they make of it."""
    pure: bool
    recorded: bool
    """What it does is recorded, and found again."""
    whole: Run | None = None
    """Of a graph: from its start to its end in the superstep of another node. Raises `Halted`."""

    def applied(self, state: dict[str, Any], update: Mapping[str, Any]) -> dict[str, Any]:
        """The state after the update."""
        both = self.reducers.keys() & update.keys() & state.keys()
        return {**state, **update, **{key: self.reducers[key](state[key], update[key]) for key in both}}


class Choice(NamedTuple):
    """A conditional edge."""

    router: Callable[[dict[str, Any], Runtime[Deps]], Awaitable[str]]
    targets: Mapping[str, str]


class Fan(NamedTuple):
    """A payload for each of several tasks, or where to go with none."""

    sender: Callable[[dict[str, Any], Runtime[Deps]], Awaitable[list[Send] | str]]
    one_inline: bool
    """The graph that takes a payload which is the only one may share the superstep of its sender."""
    again: Callable[[Any], bool] | None
    """In this state it may also where what led to the payload isn't kept: a kill has all of it done again."""


_Target = str | Send

AT = "__at__"
"""In the payload of a graph that is under way: the nodes, and payloads, that come next."""
DONE = "__done__"
"""What its nodes did before, for the record of steps."""


class Chain:
    """The nodes of a graph, and their ways on."""

    def __init__(self) -> None:
        self._nodes = {START: _Node(_as_it_is, {}, False, False)}
        self._ways: dict[str, list[str | Choice | Fan]] = {}

    def add(
        self, name: str, run: Run, reducers: _Reducers, *, pure: bool = False, recorded: bool = False
    ) -> None:
        self._nodes[name] = _Node(run, reducers, pure, recorded)

    def add_graph(self, name: str, run: Run, whole: Run, reducers: _Reducers, *, pure: bool) -> None:
        self._nodes[name] = _Node(run, reducers, pure, recorded=False, whole=whole)

    def wait_at(self, name: str) -> None:
        """Its own superstep, after those of every branch: it doesn't share one of theirs."""
        self._nodes[name] = self._nodes[name]._replace(pure=False, recorded=False, whole=None)

    def impure(self) -> list[str]:
        return [name for name, node in self._nodes.items() if not node.pure and name != START]

    def lead(self, source: str, way: str | Choice | Fan) -> None:
        self._ways.setdefault(source, []).append(way)

    async def run(
        self,
        at: str,
        state: dict[str, Any],
        runtime: Runtime[Deps],
        read: Callable[[], dict[str, Any]] | None,
    ) -> tuple[dict[str, Any], Sequence[_Target]]:
        """The node, and the pure ones that follow it: their update, and where they lead.

        `read`: the state, where the node was given a payload; it ends its superstep.
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
            if node.pure and not read:
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
        """The one pure node that comes next, and adds to nothing that was written in this superstep."""
        if len(targets) != 1 or not isinstance(targets[0], str):
            return None
        node = self._nodes.get(targets[0])
        follows = node is not None and node.pure and not node.reducers.keys() & written.keys()
        return targets[0] if follows else None

    def _lone(
        self, at: str, targets: Sequence[_Target], written: Mapping[str, Any], seen: Set[str]
    ) -> Send | None:
        """The only payload, if its graph may share this superstep, and adds to nothing that was written in it."""
        if len(targets) != 1 or not isinstance(targets[0], Send):
            return None
        node = self._nodes[targets[0].node]
        may = any(isinstance(way, Fan) and way.one_inline for way in self._ways[at])
        first = all(self._nodes[name].whole is None for name in seen)
        return targets[0] if may and first and not node.reducers.keys() & written.keys() else None

    def _handed_on(self, sent: Send, halted: "Halted", runtime: Runtime[Deps]) -> Send:
        """The payload of a graph that halted, for a task of its own: what it did isn't done again."""
        info = runtime.execution_info
        done = runtime.context.steps.handed_on(info.task_id) if info else []
        return Send(sent.node, {**sent.arg, **halted.state, AT: [*halted.targets], DONE: done})

    def _undo(self, runtime: Runtime[Deps]) -> None:
        """A graph that halted is begun anew in a task of its own."""
        if info := runtime.execution_info:
            runtime.context.steps.undone(info.task_id)

    async def begun(self, state: dict[str, Any], runtime: Runtime[Deps]) -> "Begun":
        """As far as the graph comes without a superstep of its own."""
        written: dict[str, Any] = {}
        seen, recorded = {START}, False
        at, targets = START, await self._targets(START, state, runtime)
        while (target := self._next(at, targets, state, seen, recorded)) and not _must_stop(runtime):
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
            recorded = recorded or not node.pure
            targets = await self._targets(at, state, within)
        return Begun([target for target in targets if target != END], state, written)

    def _next(
        self, at: str, targets: Sequence[_Target], state: dict[str, Any], seen: Set[str], recorded: bool
    ) -> _Target | None:
        """What a graph goes on with that has just begun."""
        if len(targets) != 1:
            return None
        target = targets[0]
        if isinstance(target, Send):
            ways = (way for way in self._ways[at] if isinstance(way, Fan))
            return target if any(w.one_inline and (not w.again or w.again(state)) for w in ways) else None
        node = None if target in seen else self._nodes.get(target)
        return target if node and (node.pure or (node.recorded and not recorded)) else None

    async def _done(
        self, name: str, state: dict[str, Any], runtime: Runtime[Deps], first: bool = False
    ) -> dict[str, Any]:
        """What the node writes. `first`: of those that share a superstep, so that LangGraph may take a graph on."""
        node, info, started = self._nodes[name], runtime.execution_info, time.perf_counter()
        if node.whole is None or info is None or (first and not node.pure):
            return await node.run(state, runtime)
        steps = runtime.context.steps
        steps.started(info.task_id, info.checkpoint_ns, name, "")
        written = await (node.run if first else node.whole)(state, runtime)
        steps.ended(info.task_id, (time.perf_counter() - started) * 1000, [*written])
        return written


class Halted(Exception):  # noqa: N818 - a message between chains
    """A graph that shares a superstep doesn't come to its end in it."""

    def __init__(self, state: dict[str, Any], targets: "Sequence[_Target]") -> None:
        """How far it has come."""
        super().__init__(targets)
        self.state, self.targets = state, targets


async def _as_it_is(state: dict[str, Any], _: Runtime[Deps]) -> dict[str, Any]:
    return state


class Begun(NamedTuple):
    """How far a graph came without a superstep of its own."""

    targets: Sequence[_Target]
    """The nodes that come next, and payloads; none: it is over."""
    state: dict[str, Any]
    written: dict[str, Any]


class Task(Runnable[Any, Any]):
    """What LangGraph runs as a node, START included."""

    def __init__(self, chain: Chain, name: str, channels: Set[str], *, sent: bool) -> None:
        """`sent`: it is given a payload, or the graph's input, not the state."""
        self._chain, self._node, self._channels, self._sent = chain, name, channels, sent

    def invoke(self, input: Any, config: RunnableConfig | None = None, **_: Any) -> Any:
        raise NotImplementedError("Graphs are driven by `ainvoke`.")

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **_: Any) -> Any:
        config = config or {}

        def read() -> dict[str, Any]:
            return ChannelRead.do_read(config, select=[*self._channels])

        token = var_child_runnable_config.set(config)  # what `interrupt` and `get_runtime` ask
        try:
            runtime = get_runtime(Deps)
            update, targets = await self._chain.run(self._node, input, runtime, read if self._sent else None)
        finally:
            var_child_runnable_config.reset(token)
        writes = [ChannelWriteEntry(key, value) for key, value in update.items() if key in self._channels]
        # The channel by which LangGraph's edges lead to a node.
        ways = [
            t if isinstance(t, Send) else ChannelWriteEntry(f"branch:to:{t}", None)
            for t in targets
            if t != END
        ]
        ChannelWrite.do_write(config, [*writes, *ways])
        return update


class Branch(Runnable[Any, Any]):
    """A conditional edge as LangGraph draws it; at run time `Task` takes it."""

    def __init__(self, name: str, *, sends: bool = False) -> None:
        self.name, self.sends = name, sends

    def invoke(self, input: Any, config: Any = None, **_: Any) -> Any:
        raise NotImplementedError("Nodes take their ways themselves.")


def _within(runtime: Runtime[Deps], name: str) -> Runtime[Deps]:
    """The runtime of a node of a graph that runs in the superstep of the node that it is."""
    info = runtime.execution_info
    if info is None:
        return runtime
    task = inside(info.task_id)
    return runtime.override(
        execution_info=replace(info, task_id=task, checkpoint_ns=f"{info.checkpoint_ns}|{name}:{task}")
    )


def _renamed(runtime: Runtime[Deps], name: str) -> Runtime[Deps]:
    """The runtime of a graph that shares the superstep of a node before it."""
    info = runtime.execution_info
    if info is None:
        return runtime
    around, bar, own = info.checkpoint_ns.rpartition("|")
    namespace = f"{around}{bar}{name}:{own.partition(':')[2]}"
    return runtime.override(execution_info=replace(info, checkpoint_ns=namespace))


def _must_stop(runtime: Runtime[Deps]) -> bool:
    return runtime.control is not None and runtime.control.drain_requested
