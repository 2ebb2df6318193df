"""_wrap: what happens around every node, router and sender at run time."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache
from inspect import signature
from typing import Any, NamedTuple, cast

from langgraph.errors import GraphBubbleUp, GraphDrained
from langgraph.graph import END
from langgraph.runtime import ExecutionInfo, Runtime
from langgraph.types import Send
from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict

from interlock.graphs._chain import Run
from interlock.graphs._checks import channels_of, hints_of, reducer_of
from interlock.state.deps import Deps, Stopped
from interlock.state.errors import RunError, SetupError
from interlock.state.events import ErrorEvent, Event, NodeEnd, NodeStart, Retry
from interlock.state.node import NodeSpec, spec_of
from interlock.state.run import RunChannels, newest

_STRICT = ConfigDict(extra="forbid", strict=True)
_RUN_CHANNELS = hints_of(RunChannels)


class Contract(NamedTuple):
    """What a node may read and write, of the graph in which it stands."""

    workflow: str
    name: str
    state: type
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    labels: tuple[str, ...] = ()

    @property
    def reducers(self) -> dict[str, Callable[[Any, Any], Any]]:
        """Of the channels that it writes."""
        known = channels_of(self.state)
        noted = ((key, reducer_of(known[key])) for key in self.writes)
        return {key: reducer for key, reducer in noted if reducer and reducer is not newest}


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
def _adapter(state: type, keys: tuple[str, ...]) -> TypeAdapter[Any]:
    """A strict checker for a part of a state: unknown keys and wrong types are errors, absent keys are fine."""
    known = channels_of(state)
    types = {key: known[key] for key in keys}
    part = TypedDict(state.__name__, types, total=False)  # pyright: ignore[reportArgumentType]
    return TypeAdapter(with_config(_STRICT)(cast(Any, part)))


def _context(runtime: Runtime[Deps], where: str) -> tuple[Deps, ExecutionInfo]:
    context = cast(Deps | None, runtime.context)
    info = runtime.execution_info
    if context is None or info is None:  # LangGraph starts a graph without its context
        raise SetupError(f"{where} was started without Deps. Run it through interlock.engine.run.")
    return context, info


def checked_node(function: Callable[..., Awaitable[Any]], contract: Contract) -> Run:
    """The node, given the keys that it reads, with its update checked, its time kept, and its start and end told."""
    workflow, name, _, reads, _, _ = contract
    where = f"{workflow}.{name}"
    spec = spec_of(function)
    acts = spec is None or not spec.pure
    tried = _tried(function, spec, where)

    async def node(state: dict[str, Any], runtime: Runtime[Deps]) -> dict[str, Any]:
        if acts:
            # LangGraph saves the checkpoint of a graph that has just begun in a task of its own. That one comes first:
            # what a node does is found again after a kill by the task that did it, which the checkpoint names.
            await asyncio.sleep(0)
        deps, info = _context(runtime, where)
        runtime = _scoped(runtime, state.get("agent", ""))
        given = {key: state[key] for key in reads if key in state}
        deps.steps.started(info.task_id, info.checkpoint_ns, name, workflow)
        runtime.stream_writer(NodeStart(workflow=workflow, node=name, checkpoint_id=info.checkpoint_id))
        started = time.perf_counter()
        try:
            with deps.cancel.guarded():
                update = await tried(given, runtime)
        except Stopped as stop:  # the task has no write, so that a resumed run does it again
            raise GraphDrained from stop
        ms = (time.perf_counter() - started) * 1000
        _check_update(where, update, contract)
        deps.steps.ended(info.task_id, ms, list(update))
        runtime.stream_writer(
            NodeEnd(workflow=workflow, node=name, checkpoint_id=info.checkpoint_id, duration_ms=round(ms, 3))
        )
        return update

    return node


def _tried(
    function: Callable[..., Awaitable[Any]], spec: NodeSpec | None, where: str
) -> Callable[[Mapping[str, Any], Runtime[Deps]], Awaitable[Any]]:
    """The node, as often and as long as it may be tried (`NodeSpec`). What a retry finds of an earlier try, like a
    model's answer that was recorded, is there."""

    async def once(state: Mapping[str, Any], runtime: Runtime[Deps]) -> Any:
        return await called(function, state, runtime)

    if spec is None or not (spec.retries or spec.timeout_s):
        return once

    async def tried(state: Mapping[str, Any], runtime: Runtime[Deps]) -> Any:
        for attempt in range(1, spec.retries + 2):
            timer = asyncio.timeout(spec.timeout_s)
            try:
                async with timer:
                    return await once(state, runtime)
            except GraphBubbleUp:  # it waits for a person
                raise
            except Exception as error:
                late = isinstance(error, TimeoutError) and timer.expired()
                reason = f"{where} took longer than {spec.timeout_s:g} s." if late else str(error)
                if attempt <= spec.retries:
                    delay = spec.retry_wait_s * 2 ** (attempt - 1)
                    runtime.stream_writer(Retry(reason=reason, delay_s=delay, attempt=attempt))
                    await asyncio.sleep(delay)
                elif (label := "timeout" if late else "failed") in spec.labels:
                    runtime.stream_writer(ErrorEvent(severity="warning", message=reason))
                    return {"label": label}
                elif late:
                    raise RunError(f"{reason} Try again with: interlock resume") from error
                else:
                    raise
        raise AssertionError("the last try returns or raises")

    return tried


def called(
    function: Callable[..., Awaitable[Any]], state: Mapping[str, Any], runtime: Runtime[Deps]
) -> Awaitable[Any]:
    """A node takes the state, and the runtime where it asks for it."""
    return function(state, runtime) if _asks_runtime(function) else function(state)


@cache
def _asks_runtime(function: Callable[..., Any]) -> bool:
    return "runtime" in signature(function).parameters


def _check_update(where: str, update: Any, contract: Contract) -> None:
    try:
        _adapter(contract.state, contract.writes).validate_python(update)
    except ValidationError as error:
        first = error.errors()[0]
        raise SetupError(
            f"{where} wrote {first['loc']!r}: {first['msg']}; see {contract.state.__name__}."
        ) from error
    if contract.labels and update.get("label") not in contract.labels:
        raise SetupError(
            f"{where} wrote label {update.get('label')!r}, expected one of {sorted(contract.labels)}."
        )


def checked_router(
    router: Callable[[Any], str], reads: Sequence[str], labels: Sequence[str]
) -> Callable[[dict[str, Any], Runtime[Deps]], Awaitable[str]]:
    """The router, held to its labels; the label is kept as the step's route."""

    async def route(state: dict[str, Any], runtime: Runtime[Deps]) -> str:
        label = router({key: state[key] for key in reads if key in state})
        if label not in labels:
            raise SetupError(f"{router.__name__} returned {label!r}, expected one of {sorted(labels)}.")
        deps, info = _context(runtime, router.__name__)
        if label:
            deps.steps.routed(info.task_id, label)
        return label

    return route


def label(state: Mapping[str, str]) -> str:
    """The router that reads what its node wrote."""
    return state["label"]


def checked_sender(
    sender: Callable[[Any], Sequence[Mapping[str, Any]]],
    reads: Sequence[str],
    target: str,
    payload: Callable[[], tuple[type, tuple[str, ...]]],
    otherwise: str | None,
) -> Callable[[dict[str, Any], Runtime[Deps]], Awaitable[list[Send] | str]]:
    """The sender, with every payload checked against the target's input; LangGraph checks none."""

    async def send(state: dict[str, Any], runtime: Runtime[Deps]) -> list[Send] | str:
        handed_on = {key: state[key] for key in _RUN_CHANNELS if state.get(key)}
        payloads = sender({key: state[key] for key in reads if key in state})
        for item in payloads:
            try:
                _adapter(*payload()).validate_python(item)
            except ValidationError as error:
                raise SetupError(
                    f"{sender.__name__} sent {item!r} to {target!r}: {error.errors()[0]['msg']}."
                ) from error
        deps, info = _context(runtime, sender.__name__)
        deps.steps.routed(info.task_id, f"{target}×{len(payloads)}" if payloads else otherwise or END)
        if not payloads:
            return otherwise or END
        return [Send(target, {**item, **handed_on}) for item in payloads]

    return send
