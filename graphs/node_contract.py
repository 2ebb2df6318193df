"""node_contract: the types of a graph's channels, and what holds its nodes, routers and senders to them in a run."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple, cast, get_type_hints

from langgraph.errors import GraphBubbleUp, GraphDrained
from langgraph.graph import END
from langgraph.runtime import ExecutionInfo, Runtime
from langgraph.types import Send
from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict

from interlock.graphs.foreign_callbacks import is_exit_exception
from interlock.graphs.user_nodes import route_or_replay, run_or_replay_node
from interlock.state.chart_channels import check_chart_moves, writable_chart_channels
from interlock.state.deps import Deps, Stopped
from interlock.state.errors import RunError, SetupError, exception_line
from interlock.state.events import ErrorEvent, Event, NodeEnd, NodeStart, Retry
from interlock.state.node import NodeSpec, attach_node_spec, find_node_spec
from interlock.state.run import RunChannels, keep_newest


@cache
def cached_type_hints(annotated: Any) -> Mapping[str, Any]:
    """Cached type hints of a class or function: read thousands of times while graphs are declared."""
    return get_type_hints(annotated, include_extras=True)


@cache
def channel_types(state: type) -> Mapping[str, Any]:
    """A graph's channels and their types: its state's, plus those every graph has."""
    return {**cached_type_hints(state), **cached_type_hints(RunChannels)}


@cache
def with_run_channels(state: type) -> type:
    """The TypedDict plus the channels every graph has."""
    return make_state_type(state.__name__, channel_types(state))


def make_state_type(name: str, keys: Mapping[str, Any]) -> type:
    """A state type whose keys are known only at run time."""
    channels = dict(keys)
    return TypedDict(name, channels, total=False)  # pyright: ignore[reportArgumentType,reportReturnType]


def find_reducer(kind: Any) -> Callable[[Any, Any], Any] | None:
    """The function that merges two values, if a channel's type names one."""
    return next((m for m in getattr(kind, "__metadata__", ()) if callable(m)), None)


Run = Callable[[dict[str, Any], Runtime[Deps]], Awaitable[dict[str, Any]]]
"""A node: maps the whole state, or a payload, to an update."""
_STRICT = ConfigDict(extra="forbid", strict=True)
_RUN_CHANNELS = cached_type_hints(RunChannels)


class NodeContract(NamedTuple):
    """What a node may read and write, in its graph."""

    workflow: str
    name: str
    state: type
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    labels: tuple[str, ...] = ()

    @property
    def reducers(self) -> dict[str, Callable[[Any, Any], Any]]:
        """Reducers of the channels it writes."""
        known = channel_types(self.state)
        noted = ((key, find_reducer(known[key])) for key in self.writes)
        return {key: reducer for key, reducer in noted if reducer and reducer is not keep_newest}


def _runtime_for_node(runtime: Runtime[Deps], agent: str) -> Runtime[Deps]:
    """Send the node's events straight to the renderers: LangGraph's stream wakes its loop for each event.

    A sub-agent's node gets its own models, tools and policy, and its path is set on every event.
    """
    tell = runtime.context.emit
    if not agent:
        return runtime if runtime.stream_writer is tell else runtime.override(stream_writer=tell)
    deps = runtime.context.agents.deps_for_agent(agent)

    def write(event: Event) -> None:
        tell(event if event.agent else event.model_copy(update={"agent": deps.info.agent}))

    return runtime.override(context=deps, stream_writer=write)


@cache
def _keys_validator(state: type, keys: tuple[str, ...]) -> Any:
    """A strict validator for some keys of a state: rejects unknown keys and wrong types, accepts absent keys."""
    known = channel_types(state)
    types = {key: known[key] for key in keys}
    subgraph = TypedDict(state.__name__, types, total=False)  # pyright: ignore[reportArgumentType]
    return TypeAdapter(with_config(_STRICT)(cast(Any, subgraph))).validator


def restore_types_from_json(state: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values, read from JSON, as the state declares them: a text as a datetime, a list as a tuple. One that
    can't be is left as it is.
    """
    made = dict(values)
    for key in values.keys() & channel_types(state).keys():
        validator = _keys_validator(state, (key,))
        given = {key: values[key]}
        try:
            validator.validate_python(given)
        except ValidationError:
            with suppress(ValidationError):
                made |= validator.validate_json(json.dumps(given))
    return made


def _require_deps_and_task(runtime: Runtime[Deps], where: str) -> tuple[Deps, ExecutionInfo]:
    context: Any = runtime.context
    info = runtime.execution_info
    if context is None or info is None:  # LangGraph lets a graph start without its context
        raise SetupError(f"{where} was started without Deps. Run it through interlock.engine.run.")
    return context, info


def wrap_node(function: Callable[..., Awaitable[Any]], contract: NodeContract) -> Run:
    """Wrap the node: pass only the keys it reads, validate its update, time it, and emit its start and end."""
    workflow, name, _, reads, _, _ = contract
    where = f"{workflow}.{name}"
    spec = find_node_spec(function)
    tried = _with_retries_and_timeout(function, spec, where)
    governed = writable_chart_channels((*channel_types(contract.state).items(),), contract.writes)

    async def node(state: dict[str, Any], runtime: Runtime[Deps]) -> dict[str, Any]:
        deps, info = _require_deps_and_task(runtime, where)
        runtime = _runtime_for_node(runtime, state.get("agent", ""))
        inputs = {key: state[key] for key in reads if key in state}
        deps.steps.record_start(info.task_id, info.checkpoint_ns, name, workflow)
        runtime.stream_writer(NodeStart(workflow=workflow, node=name, checkpoint_id=info.checkpoint_id))
        started = time.perf_counter()
        try:
            with deps.cancel.cancel_on_stop():
                update = await tried(inputs, runtime)
        except Stopped as stop:  # the task writes nothing, so that a resumed run repeats it
            raise GraphDrained from stop
        except BaseException as error:
            if is_exit_exception(error):  # LangGraph notes the node on an `Exception` only
                error.add_note(f"During task with name '{name}'")
            raise
        ms = (time.perf_counter() - started) * 1000
        _check_update(where, update, contract)
        check_chart_moves(where, governed, spec.moves if spec else (), state, update)
        deps.steps.record_end(info.task_id, ms, list(update))
        runtime.stream_writer(
            NodeEnd(workflow=workflow, node=name, checkpoint_id=info.checkpoint_id, duration_ms=round(ms, 3))
        )
        return update

    return attach_node_spec(node, spec)


def _with_retries_and_timeout(
    function: Callable[..., Awaitable[Any]], spec: NodeSpec | None, where: str
) -> Callable[[Mapping[str, Any], Runtime[Deps]], Awaitable[Any]]:
    """The node with its retries and timeout (`NodeSpec`). A retry finds what earlier tries recorded, e.g. a reply."""

    async def once(state: Mapping[str, Any], runtime: Runtime[Deps]) -> Any:
        return await run_or_replay_node(function, state, runtime)

    if spec is None or not (spec.retries or spec.timeout_s):
        return once

    async def tried(state: Mapping[str, Any], runtime: Runtime[Deps]) -> Any:
        for attempt in range(1, spec.retries + 2):
            timer = asyncio.timeout(spec.timeout_s)
            try:
                async with timer:
                    return await once(state, runtime)
            except GraphBubbleUp:  # the node waits for a person
                raise
            except Exception as error:
                late = isinstance(error, TimeoutError) and timer.expired()
                reason = (
                    f"{where} took longer than {spec.timeout_s:g} s."
                    if late
                    else exception_line(error, 1_000)
                )
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


def _check_update(where: str, update: Any, contract: NodeContract) -> None:
    try:
        _keys_validator(contract.state, contract.writes).validate_python(update)
    except ValidationError as error:
        first = error.errors()[0]
        raise SetupError(
            f"{where} wrote {first['loc']!r}: {first['msg']}; see {contract.state.__name__}."
        ) from error
    if contract.labels and update.get("label") not in contract.labels:
        raise SetupError(
            f"{where} wrote label {update.get('label')!r}, expected one of {sorted(contract.labels)}."
        )


def wrap_router(
    router: Callable[[Any], str], reads: Sequence[str], labels: Sequence[str]
) -> Callable[[dict[str, Any], Runtime[Deps]], Awaitable[str]]:
    """Validate the router's label, and log it as the step's route."""

    async def route(state: dict[str, Any], runtime: Runtime[Deps]) -> str:
        label = await route_or_replay(router, {key: state[key] for key in reads if key in state}, runtime)
        if label not in labels:
            raise SetupError(f"{router.__name__} returned {label!r}, expected one of {sorted(labels)}.")
        deps, info = _require_deps_and_task(runtime, router.__name__)
        if label:
            deps.steps.record_route(info.task_id, label)
        return label

    return route


def label(state: Mapping[str, str]) -> str:
    """The router for a node that writes its own label."""
    return state["label"]


def wrap_sender(
    sender: Callable[[Any], Sequence[Mapping[str, Any]]],
    reads: Sequence[str],
    target: str,
    get_payload_type_and_keys: Callable[[], tuple[type, tuple[str, ...]]],
    otherwise: str | None,
) -> Callable[[dict[str, Any], Runtime[Deps]], Awaitable[list[Send] | str]]:
    """Validate each payload against the target's input, as LangGraph doesn't."""

    async def send(state: dict[str, Any], runtime: Runtime[Deps]) -> list[Send] | str:
        handed_on = {key: state[key] for key in _RUN_CHANNELS if state.get(key)}
        payloads = await route_or_replay(sender, {key: state[key] for key in reads if key in state}, runtime)
        now = state.get("approval_mode")
        for item in payloads:
            try:
                _keys_validator(*get_payload_type_and_keys()).validate_python(item)
            except ValidationError as error:
                raise SetupError(
                    f"{sender.__name__} sent {item!r} to {target!r}: {error.errors()[0]['msg']}."
                ) from error
            if (mode := item.get("approval_mode", now)) != now and now:
                raise SetupError(
                    f"{sender.__name__} sent the approval mode {mode!r} to {target!r}; the run is in {now!r}."
                )
        deps, info = _require_deps_and_task(runtime, sender.__name__)
        deps.steps.record_route(info.task_id, f"{target}×{len(payloads)}" if payloads else otherwise or END)
        if not payloads:
            return otherwise or END
        return [Send(target, {**item, **handed_on}) for item in payloads]

    return send
