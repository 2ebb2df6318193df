"""langgraph_internals: every touch of LangGraph's internals, which `pyproject.toml` pins; how graphs are driven.

Names in a store are in `stored_channels.py`, those of its serializer in `stored_values.py`. A release that changes one
fails tests: those of runs, and `tests/test_langgraph_internals.py` for what no run shows. Functions import LangGraph
themselves: a start that only looks for workflows doesn't load it.
"""

import sys
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from copy import copy
from functools import cache
from importlib import import_module
from types import FunctionType
from typing import Any, NamedTuple, Protocol, cast, get_type_hints
from uuid import NAMESPACE_OID, UUID, uuid5

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.runnables import RunnableConfig
from langgraph import types
from langgraph._internal._constants import CONFIG_KEY_RUNTIME
from langgraph._internal._serde import build_serde_allowlist, curated_core_allowlist
from langgraph.checkpoint.base import id as ids
from langgraph.checkpoint.serde._msgpack import SAFE_MSGPACK_TYPES
from langgraph.config import get_config
from langgraph.graph import StateGraph
from langgraph.pregel import Pregel
from langgraph.pregel._loop import AsyncPregelLoop, SyncPregelLoop
from langgraph.pregel._read import ChannelRead
from langgraph.pregel._write import ChannelWrite, ChannelWriteEntry
from langgraph.runtime import Runtime
from langgraph.types import (
    Send,
    _interrupt_id,  # pyright: ignore[reportPrivateUsage]
    _validate_resume,  # pyright: ignore[reportPrivateUsage]
)

from interlock.graphs.stored_channels import EDGE, INPUT, PAYLOADS, WHOLE

_algo: Any = import_module("langgraph.pregel._algo")
_checkpoint: Any = import_module("langgraph.pregel._checkpoint")
_runnable: Any = import_module("langgraph._internal._runnable")


def current_namespace_and_scratchpad() -> tuple[str, object]:
    """The namespace of the task that calls `interrupt`, and an object that stands for this execution of it."""
    known = get_config()["configurable"]  # pyright: ignore[reportTypedDictNotRequiredAccess]
    return str(known["checkpoint_ns"]), known["__pregel_scratchpad"]


def current_task_id() -> str:
    """The id of the task that runs; empty: none."""
    try:
        known = get_config().get("configurable", {})
    except RuntimeError:  # outside a graph
        return ""
    return str(known.get("checkpoint_ns", "")).rpartition(":")[2]


def langgraph_interrupt_id(namespace: str, number: int) -> str:
    """The id that LangGraph gives to a task's interrupt after so many answers."""
    return _interrupt_id(namespace, number)


def validate_answer(adapter: Any, value: Any) -> Any:
    """The answer as the type that `interrupt` was given. Raises `ValidationError`."""
    return _validate_resume(adapter, value)


_interrupt: Any = types.interrupt
_original_interrupt: Any = FunctionType(_interrupt.__code__, _interrupt.__globals__)
"""What LangGraph's `interrupt` does itself, also once its code is replaced."""
_original_interrupt.__kwdefaults__ = _interrupt.__kwdefaults__


class InterruptAnswerer(Protocol):
    """Who answers what nodes ask."""

    def get_answer_or_interrupt(self, value: Any, response_schema: Any, /) -> Any:
        """Return the answer. Raises `GraphInterrupt` where there is none."""
        ...


QUESTIONS: ContextVar[InterruptAnswerer | None] = ContextVar(
    "questions of a foreign graph's drive", default=None
)


def get_answer_or_interrupt(value: Any, response_schema: Any) -> Any:
    """Return the answer to what `interrupt` asks; outside a foreign graph's drive, as LangGraph does."""
    questions = QUESTIONS.get()
    if questions is None:
        return _original_interrupt(value, response_schema=response_schema)
    return questions.get_answer_or_interrupt(value, response_schema)


@cache
def patch_interrupt() -> None:
    """Let `interrupt` ask `answer_here`. Its code is replaced, as nodes have imported it by name."""

    def interrupt(value: Any, *, response_schema: Any = None) -> Any:
        from interlock.graphs.langgraph_internals import (
            get_answer_or_interrupt,  # it runs with the globals of LangGraph's module
        )

        return get_answer_or_interrupt(value, response_schema)

    _interrupt.__code__ = interrupt.__code__


def unconditional_writes(compiled: Any, node: str) -> list[tuple[str, Any]]:
    """What a node writes to channels whatever it returns: its edges without a condition."""
    written = [one for one in compiled.nodes[node].writers if isinstance(one, ChannelWrite)]
    entries = [entry for one in written for entry in one.writes if isinstance(entry, ChannelWriteEntry)]
    return [(one.channel, one.value) for one in entries if one.channel.startswith((EDGE, "join:"))]


def code_parts_of_node(compiled: Any, node: str) -> Iterator[Any]:
    """What a node calls: its function, tool node or graph, and the routers behind it."""
    yield compiled.nodes[node].bound
    branches = getattr(getattr(compiled, "builder", None), "branches", {})
    for name, branch in branches.get(node, {}).items():
        yield name
        yield branch.path


class DueTask(NamedTuple):
    """A task that a checkpoint leads to."""

    id: str
    name: str
    path: tuple[Any, ...]
    triggers: tuple[str, ...]


def due_tasks(compiled: Any, stored_checkpoint: Any) -> list[DueTask]:
    """The tasks that a graph runs after a stored checkpoint, in their order."""
    channels, managed = _restore_channels(compiled, stored_checkpoint)
    step = stored_checkpoint.metadata.get("step", 0) + 1
    given = (
        stored_checkpoint.checkpoint,
        [*stored_checkpoint.pending_writes],
        compiled.nodes,
        channels,
        managed,
        stored_checkpoint.config,
    )
    made: Any = _algo.prepare_next_tasks(*given, step, step + 1, for_execution=False)
    return [DueTask(one.id, one.name, one.path, _task_triggers(compiled, one)) for one in made.values()]


async def run_function_as_node(
    compiled: Any, stored_checkpoint: Any, task: DueTask, function: Any, context: Any
) -> list[Any]:
    """Run a function as the node of a task that a stored checkpoint leads to; returns what it and its edges write."""
    bound = _runnable.coerce_to_runnable(function, name=task.name, trace=True)
    nodes = {**compiled.nodes, task.name: compiled.nodes[task.name].copy({"bound": bound})}
    channels, managed = _restore_channels(compiled, stored_checkpoint)
    step = stored_checkpoint.metadata.get("step", 0) + 1
    place = {**stored_checkpoint.config["configurable"], CONFIG_KEY_RUNTIME: Runtime(context=context)}
    given = (
        stored_checkpoint.checkpoint,
        [*stored_checkpoint.pending_writes],
        nodes,
        channels,
        managed,
        {"configurable": place},
    )
    made: Any = _algo.prepare_next_tasks(*given, step, step + 1, for_execution=True)
    await made[task.id].proc.ainvoke(made[task.id].input, made[task.id].config)
    return [*made[task.id].writes]


def _task_triggers(compiled: Any, task: Any) -> tuple[str, ...]:
    pushed = task.path[0] == "__pregel_push"
    return ("__pregel_push",) if pushed else (*sorted(compiled.nodes[task.name].triggers),)


def _restore_channels(compiled: Any, stored_checkpoint: Any) -> tuple[Any, Any]:
    """The graph's channels with the values of a stored checkpoint, and what it computes besides."""
    saver = compiled.checkpointer
    return _checkpoint.channels_from_checkpoint(
        compiled.channels, stored_checkpoint.checkpoint, saver=saver, config=stored_checkpoint.config
    )


def apply_writes_to_checkpoint(
    compiled: Any, stored_checkpoint: Any, done: Iterable[tuple[DueTask, Sequence[tuple[str, Any]]]]
) -> Any:
    """The checkpoint that follows a stored one, when these tasks have written that. Raises what a reducer raises."""
    made = _checkpoint.copy_checkpoint(stored_checkpoint.checkpoint)
    channels, _ = _restore_channels(compiled, stored_checkpoint)
    version, nodes = compiled.checkpointer.get_next_version, compiled.trigger_to_nodes
    if asked := [
        (channel, value) for task, channel, value in stored_checkpoint.pending_writes if task == _NO_TASK
    ]:
        _algo.apply_writes(made, channels, [_algo.PregelTaskWrites((), INPUT, asked, [])], version, nodes)
    tasks = [_algo.PregelTaskWrites(task.path, task.name, writes, task.triggers) for task, writes in done]
    _algo.apply_writes(made, channels, tasks, version, nodes)
    return _checkpoint.create_checkpoint(made, channels, stored_checkpoint.metadata.get("step", 0) + 1)


_NO_TASK = "00000000-0000-0000-0000-000000000000"
"""Stands for the task of what a resume writes."""


def read_channels(config: RunnableConfig, channels: Iterable[str]) -> dict[str, Any]:
    """The state as a task sees it that got a payload instead."""
    return ChannelRead.do_read(config, select=[*channels])


def write_update_and_targets(
    config: RunnableConfig, update: Mapping[str, Any], targets: Iterable[str | Send]
) -> None:
    """Write a task's update, and where it leads, at once: LangGraph's own branches would read the state again."""
    entries = [ChannelWriteEntry(key, value) for key, value in update.items()]
    ways = [ChannelWriteEntry(EDGE + t, None) if isinstance(t, str) else t for t in targets]
    ChannelWrite.do_write(config, [*entries, *ways])


def start_state_for_targets(targets: Sequence[str | Send]) -> dict[str, Any]:
    """What is added to a graph's input for it to start at these nodes and payloads; see `starts_anywhere`."""
    ways: dict[str, Any] = {EDGE + target: None for target in targets if isinstance(target, str)}
    if sent := [target for target in targets if not isinstance(target, str)]:
        ways[PAYLOADS] = sent
    return ways


def allow_start_at_any_node(compiled: Any) -> None:
    """Make a compiled graph accept a state with the nodes to start at, instead of an input for its START."""
    compiled.input_channels = [*compiled.channels]


def replace_node_runnables(compiled: Any, start: Any, subgraphs: Mapping[str, Any]) -> None:
    """Make each node run its task alone: LangGraph would run a sequence of it and its writers.

    `start`: what runs as START. `subgraphs`: what some nodes stand for; a waiting run is asked for their states.
    """
    for name, node in compiled.nodes.items():
        node.node = start if name == INPUT else node.bound
        if name in subgraphs:
            node.subgraphs = [subgraphs[name]]


def initial_channel_values(compiled: Any) -> dict[str, Any]:
    """Values of the channels that have one before anything is written, such as those with a reducer."""
    return {key: channel.get() for key, channel in compiled.channels.items() if channel.is_available()}


def has_checkpoint(config: Mapping[str, Any]) -> bool:
    """Whether there is a checkpoint of the graph that stands for this task's node."""
    known = config.get("configurable", {})
    saver = known.get("__pregel_checkpointer")
    if saver is None:
        return False
    where = {"thread_id": known["thread_id"], "checkpoint_ns": known["checkpoint_ns"]}
    return saver.get_tuple({"configurable": where}) is not None


def advance_id_clock(newest_id: str) -> None:
    """Make new checkpoint ids sort after this one, even if the clock stepped back.

    `docs/internals.md#the-id-clock`.
    """
    bits = UUID(newest_id).int
    stamp = ((bits >> 80) << 12) | ((bits >> 64) & 0xFFF)
    ids._last_v6_timestamp = max(ids._last_v6_timestamp or 0, stamp)  # pyright: ignore[reportPrivateUsage]


def is_langgraph_graph(value: object) -> bool:
    """Whether it is a graph of LangGraph: a `StateGraph`, one that is compiled, or an `@entrypoint`."""
    return isinstance(value, StateGraph | Pregel)


def ensure_compiled_graph(graph: Any) -> Any:
    """The graph, compiled if it isn't. Raises `ValueError` if it can't be."""
    made = cast(Any, graph).compile() if isinstance(graph, StateGraph) else graph
    return _wrap_remote_graphs(made) if "langgraph.pregel.remote" in sys.modules else made


def _wrap_remote_graphs(compiled: Any) -> Any:
    """A copy of a graph, and of those inside it, whose nodes that a server runs (`RemoteGraph`) are nodes like any.

    Their types and their state aren't here, and their server gets a thread that it takes.
    """
    made = copy(compiled)
    made.nodes = {name: _replace_remote_graphs_in_node(node) for name, node in compiled.nodes.items()}
    return made


def _replace_remote_graphs_in_node(node: Any) -> Any:
    from langgraph.pregel.remote import RemoteGraph

    inner = {id(one): _wrap_remote_graphs(one) for one in node.subgraphs if is_langgraph_graph(one)}
    bound = inner.get(id(node.bound), node.bound)
    if type(bound) is RemoteGraph:
        given: dict[str, Any] = {**vars(bound)}
        bound = _remote_graph_class()(given.pop("assistant_id"), **given)
    return node.copy({"bound": bound, "subgraphs": [*inner.values()]})


@cache
def _remote_graph_class() -> Any:
    from langgraph.pregel.remote import RemoteGraph

    class ServedGraph(RemoteGraph):
        """A graph on a server, whose thread there has a UUID: servers take nothing else, not the caller's run id."""

        def stream(self, input: Any, config: Any = None, **given: Any) -> Iterator[Any]:
            served: Any = super()
            yield from served.stream(input, _with_uuid_thread_id(config), **given)

        async def astream(self, input: Any, config: Any = None, **given: Any) -> AsyncIterator[Any]:
            served: Any = super()
            async for part in served.astream(input, _with_uuid_thread_id(config), **given):
                yield part

    return ServedGraph


def _with_uuid_thread_id(config: Any) -> Any:
    known: dict[str, Any] = config.get("configurable", {}) if config else {}
    thread = known.get("thread_id")
    try:
        UUID(thread or "")
    except ValueError:
        if thread:
            named = str(uuid5(NAMESPACE_OID, f"interlock:{thread}"))
            return {**config, "configurable": {**known, "thread_id": named}}
    return config


def make_server_runtime(store: Any) -> Any:
    """What LangGraph's server gives to a function that makes a graph."""
    from langgraph_sdk.runtime import _ExecutionRuntime  # pyright: ignore[reportPrivateUsage]

    return _ExecutionRuntime(access_context="threads.create_run", store=store)


class _NothingToSave:
    """Stands for the saved checkpoint of a graph without a saver."""

    def result(self) -> None: ...

    def __await__(self) -> Iterator[Any]:
        return iter(())


@cache
def _allow_sync_durability_without_saver() -> None:
    """Let a graph without a saver run inside one with `durability="sync"`: it would wait for what it never saved."""
    for loop in (AsyncPregelLoop, SyncPregelLoop):
        loop._put_checkpoint_fut = _NothingToSave()  # pyright: ignore[reportAttributeAccessIssue, reportPrivateUsage]


def copy_graph_with_saver(compiled: Any, saver: Any, store: Any, name: str = "") -> Any:
    """A copy of somebody's compiled graph that keeps its state with our saver, and memories in `store` or its own."""
    made = _copy_graph_submitting_all_tasks(compiled)
    made.checkpointer, made.store = saver, compiled.store or store
    made.name = name or made.name
    return made


def _copy_graph_submitting_all_tasks(compiled: Any) -> Any:
    """A copy of a graph, and of those that are its nodes, in which each task is submitted: LangGraph runs one alone
    without, unless there is somebody to stream to."""
    made = copy(compiled)
    made.stream_eager = True
    inner = {name: node for name, node in made.nodes.items() if node.bound in node.subgraphs}
    made.nodes = {
        **made.nodes,
        **{name: _copy_node_submitting_all_tasks(node) for name, node in inner.items()},
    }
    return made


def _copy_node_submitting_all_tasks(node: Any) -> Any:
    bound = _copy_graph_submitting_all_tasks(node.bound)
    return node.copy(
        {"bound": bound, "subgraphs": [bound if one is node.bound else one for one in node.subgraphs]}
    )


def find_reached_breakpoints(
    compiled: Any, snapshot: Any, list_executed_nodes: Callable[[Any], Collection[str]]
) -> list[tuple[str, str, Any]]:
    """The breakpoints (`interrupt_before`, `interrupt_after`) that a graph, and those inside it, stand at.

    Each with its checkpoint's id, `before NODE` or `after NODE`, and the values there. `list_executed_nodes`: the
    nodes of the superstep that ended with a snapshot.
    """
    found: list[tuple[str, str, Any]] = []
    inside = dict(compiled.get_subgraphs())
    for task in snapshot.tasks:
        if task.name in inside and hasattr(task.state, "tasks"):
            found += find_reached_breakpoints(inside[task.name], task.state, list_executed_nodes)
    before, after = compiled.interrupt_before_nodes, compiled.interrupt_after_nodes
    stops = [f"before {one.name!r}" for one in snapshot.tasks if _has_breakpoint(one.name, before)]
    if after and snapshot.tasks:
        stops += [f"after {name!r}" for name in list_executed_nodes(snapshot) if _has_breakpoint(name, after)]
    name = str(snapshot.config["configurable"].get("checkpoint_id", ""))
    return found + [(name, " and ".join(stops), snapshot.values)] * bool(stops)


def _has_breakpoint(node: str, wanted: Any) -> bool:
    return not node.startswith("__") and (wanted == "*" or node in wanted)


def has_breakpoints(compiled: Any) -> bool:
    graphs = (compiled, *(inner for _, inner in compiled.get_subgraphs(recurse=True)))
    return any(one.interrupt_before_nodes or one.interrupt_after_nodes for one in graphs)


def node_timeouts(compiled: Any) -> dict[str, float]:
    """Node → seconds that it may take, in a graph and those inside it; only of nodes with a time-out."""
    found: dict[str, float] = {}
    for graph in (compiled, *(inner for _, inner in compiled.get_subgraphs(recurse=True))):
        for name, node in graph.nodes.items():
            own = getattr(node, "timeout", None)
            limits = [own.run_timeout, own.idle_timeout] if own else [graph.step_timeout]
            seconds = [one if isinstance(one, int | float) else one.total_seconds() for one in limits if one]
            if seconds:
                found[name] = max(found.get(name, 0), *seconds)
    return found


def types_named_by_graph(compiled: Any) -> set[tuple[str, ...]]:
    """Classes (module, name) that the types of a graph, and of the graphs inside it, name: they may be loaded again."""
    found: set[tuple[str, ...]] = set()
    for graph in (compiled, *(inner for _, inner in compiled.get_subgraphs(recurse=True))):
        builder = getattr(graph, "builder", None)
        schemas: list[Any] = [*builder.schemas] if builder else []
        schemas += [graph.context_schema] if graph.context_schema else []
        found |= build_serde_allowlist(schemas=schemas, channels=graph.channels)
    return found


def always_storable_types() -> frozenset[tuple[str, ...]]:
    """Classes that LangGraph stores and loads again in any graph, and some plain values of other packages."""
    return frozenset(SAFE_MSGPACK_TYPES) | curated_core_allowlist() | _PLAIN_VALUES


_PLAIN_VALUES = frozenset(
    {
        ("langchain_core.documents.base", "Document"),
        ("langchain_core.agents", "AgentAction"),
        ("langchain_core.agents", "AgentFinish"),
        ("pydantic.types", "SecretStr"),
        ("pydantic.types", "SecretBytes"),
        ("re", "Pattern"),  # LangGraph stores how it is made, by `re.compile`
    }
)


def input_field_types(compiled: Any) -> dict[str, Any] | None:
    """Key → type of a graph's input; None: any value is one."""
    builder = getattr(compiled, "builder", None)
    if builder is None or WHOLE in builder.schemas[builder.input_schema]:
        return None
    try:
        hints = get_type_hints(builder.input_schema, include_extras=True)
    except (NameError, TypeError):
        hints = {}
    return {key: hints.get(key, Any) for key in builder.schemas[builder.input_schema]}


def input_type(compiled: Any) -> Any:
    """The type of a graph's input, as a function declares it or a builder."""
    builder = getattr(compiled, "builder", None)
    if builder is None:
        found = compiled.InputType
        return Any if isinstance(found, str) else found  # LangGraph doesn't resolve it either
    return Any if WHOLE in builder.schemas[builder.input_schema] else builder.input_schema


_FIRST_PART = "seq:step:1"
_WHOLE_NODE = ("graph:step:", _FIRST_PART)


def find_task_of_callback(
    tags: Sequence[str] | None, metadata: Mapping[str, Any] | None
) -> tuple[str, str, str] | None:
    """Task id, namespace and node of a callback's run, if it is that of a whole node.

    A `@task` has no such run, only that of its first part, as any node has after its own. It is given no parents.
    """
    if not metadata or not (found := [tag for tag in tags or () if tag.startswith(_WHOLE_NODE)]):
        return None
    namespace = str(metadata.get("langgraph_checkpoint_ns", ""))
    if found == [_FIRST_PART]:
        namespace = namespace.rpartition("|")[2]
    return namespace.rpartition(":")[2], namespace, str(metadata.get("langgraph_node", ""))


class StreamingHandler(BaseCallbackHandler):
    """A callback handler for which models stream their tokens, also where a node only `invoke`s them.

    LangChain goes by the two methods. LangGraph goes by the protocol that they are of, and streams each node of a
    handler that inherits it: the output of a graph inside another one would be all of its state.
    """

    run_inline = True

    def tap_output_aiter(self, run_id: Any, output: Any) -> Any:  # noqa: ARG002 - LangChain's signature
        return output

    def tap_output_iter(self, run_id: Any, output: Any) -> Any:  # noqa: ARG002 - LangChain's signature
        return output


Tap = Callable[..., AsyncIterator[Any]]
"""Called with a compiled graph, its input, its config and the keywords of `astream`; yields the custom parts."""
TAP: ContextVar[Tap | None] = ContextVar("TAP", default=None)
"""Of the drives in this context; None: nobody looks."""


async def drive_and_yield_custom_data(
    app: Any, graph_input: Any, config: Any, **given: Any
) -> AsyncIterator[Any]:
    """Drive a graph, and yield what its nodes write to the stream."""
    _allow_sync_durability_without_saver()
    if tap := TAP.get():
        async for part in tap(app, graph_input, config, **given):
            yield part
        return
    async for _, _, data in app.astream(graph_input, config, stream_mode=["custom"], subgraphs=True, **given):
        yield data


async def drive_without_stream(app: Any, graph_input: Any, config: Any, **given: Any) -> None:
    """Drive a graph whose events are emitted elsewhere."""
    _allow_sync_durability_without_saver()
    if TAP.get():
        parts = drive_and_yield_custom_data(app, graph_input, config, **given)
    else:
        parts = app.astream(graph_input, config, stream_mode=[], **given)
    async for _ in parts:
        pass
