"""_wrap: what happens around every node, router and sender at run time."""

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache, partial
from inspect import signature
from typing import Any, Literal, cast

from langgraph.errors import GraphDrained
from langgraph.graph import END
from langgraph.runtime import ExecutionInfo, Runtime
from langgraph.types import Send
from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config

from interlock.graphs._checks import hints_of, keys_of
from interlock.state.deps import Deps, Stopped
from interlock.state.errors import SetupError
from interlock.state.events import Event, NodeEnd, NodeStart
from interlock.state.run import RunChannels

_STRICT = ConfigDict(extra="forbid", strict=True)


RUN_CHANNELS = hints_of(RunChannels)


@cache
def with_run_channels(kind: type) -> type:
    """The TypedDict, with the channels that every graph has."""
    from typing_extensions import TypedDict

    keys = {**hints_of(kind), **RUN_CHANNELS}
    return TypedDict(kind.__name__, keys, total=False)  # pyright: ignore[reportArgumentType,reportReturnType]


def _scoped(runtime: Runtime[Deps], agent: str) -> Runtime[Deps]:
    """What a node writes goes straight to the renderers: LangGraph's stream wakes its loop for each event.

    A sub-agent's node has its own models, tools and policy, and its path on every event.
    """
    tell = runtime.context.emit
    if not agent:
        return runtime.override(stream_writer=tell)
    deps = runtime.context.agents.scope(agent)

    def write(event: Event) -> None:
        tell(event if event.agent else event.model_copy(update={"agent": deps.info.agent}))

    return runtime.override(context=deps, stream_writer=write)


@cache
def _adapter(kind: type) -> TypeAdapter[Any]:
    """A strict checker for a TypedDict: unknown keys and wrong types are errors, absent keys are fine."""
    keys = hints_of(kind)
    from typing_extensions import TypedDict

    partial = TypedDict(kind.__name__, keys, total=False)  # pyright: ignore[reportArgumentType]
    return TypeAdapter(with_config(_STRICT)(cast(Any, partial)))


def _context(runtime: Runtime[Deps], where: str) -> tuple[Deps, ExecutionInfo]:
    context = cast(Deps | None, runtime.context)
    info = runtime.execution_info
    if context is None or info is None:  # LangGraph starts a graph without its context
        raise SetupError(f"{where} was started without Deps. Run it through interlock.engine.run.")
    return context, info


def checked_node(
    workflow: str,
    name: str,
    function: Callable[..., Awaitable[Any]],
    reads: type,
    writes: type,
    labels: Sequence[str] = (),
) -> Callable[..., Awaitable[Any]]:
    """The node, with its input keys and its update checked, its time kept, and its start and end told."""
    keys = frozenset(hints_of(reads))
    where = f"{workflow}.{name}"
    asks_runtime = "runtime" in signature(function).parameters

    async def node(state: dict[str, Any], runtime: Runtime[Deps]) -> Any:
        deps, info = _context(runtime, where)
        runtime = _scoped(runtime, state.get("agent", ""))
        state = {key: value for key, value in state.items() if key not in RUN_CHANNELS or key in keys}
        if not keys.issuperset(state):
            raise SetupError(f"{where} was sent {sorted(set(state) - keys)}, it reads {sorted(keys)}.")
        deps.steps.started(info.task_id, info.checkpoint_ns, name, workflow)
        runtime.stream_writer(NodeStart(workflow=workflow, node=name, checkpoint_id=info.checkpoint_id))
        started = time.perf_counter()
        try:
            with deps.cancel.guarded():
                update = await (function(state, runtime) if asks_runtime else function(state))
        except Stopped as stop:  # the task has no write, so that a resumed run does it again
            raise GraphDrained from stop
        ms = (time.perf_counter() - started) * 1000
        _check_update(where, update, writes, labels)
        deps.steps.ended(info.task_id, ms, list(update))
        runtime.stream_writer(
            NodeEnd(workflow=workflow, node=name, checkpoint_id=info.checkpoint_id, duration_ms=round(ms, 3))
        )
        return update

    # LangGraph would read a plain function's bytecode, looking for graphs in it: 5 ms a node.
    return partial(node)


def _check_update(where: str, update: Any, writes: type, labels: Sequence[str]) -> None:
    try:
        _adapter(writes).validate_python(update)
    except ValidationError as error:
        first = error.errors()[0]
        raise SetupError(f"{where} wrote {first['loc']!r}: {first['msg']}; see {writes.__name__}.") from error
    if labels and update.get("label") not in labels:
        raise SetupError(f"{where} wrote label {update.get('label')!r}, expected one of {sorted(labels)}.")


def checked_router(
    router: Callable[[Any], str], reads: type, labels: Sequence[str]
) -> Callable[..., Awaitable[str]]:
    """The router, held to its labels; the label is kept as the step's route.

    Async, although it waits for nothing: LangGraph hands a plain function to a thread.
    """

    async def route(state: Any, runtime: Runtime[Deps]) -> str:
        label = router(state)
        if label not in labels:
            raise SetupError(f"{router.__name__} returned {label!r}, expected one of {sorted(labels)}.")
        deps, info = _context(runtime, router.__name__)
        if label:
            deps.steps.routed(info.task_id, label)
        return label

    route.__name__ = router.__name__
    route.__annotations__["state"] = reads
    return route


def by_label(state: type, labels: Sequence[str]) -> Callable[[Any], str]:
    """A router that reads the label which its node wrote."""
    reads = keys_of("a router reads", state, ("label",))

    def label(state: Mapping[str, str]) -> str:
        return state["label"]

    label.__annotations__ = {"state": reads, "return": Literal[*labels]}
    return label


def checked_sender(
    sender: Callable[[Any], Sequence[Mapping[str, Any]]],
    reads: type,
    target: str,
    payload: type,
    otherwise: str | None,
) -> Callable[..., Awaitable[list[Send] | str]]:
    """The sender, with every payload checked against the target's input; LangGraph checks none."""
    check = _adapter(payload)

    async def send(state: Any, runtime: Runtime[Deps]) -> list[Send] | str:
        handed_on = {key: state[key] for key in RUN_CHANNELS if state.get(key)}
        payloads = sender(state)
        for item in payloads:
            try:
                check.validate_python(item)
            except ValidationError as error:
                raise SetupError(
                    f"{sender.__name__} sent {item!r} to {target!r}: {error.errors()[0]['msg']}."
                ) from error
        deps, info = _context(runtime, sender.__name__)
        deps.steps.routed(info.task_id, f"{target}×{len(payloads)}" if payloads else otherwise or END)
        if not payloads:
            return otherwise or END
        return [Send(target, {**item, **handed_on}) for item in payloads]

    send.__name__ = sender.__name__
    send.__annotations__["state"] = with_run_channels(reads)
    return send
