"""user_nodes: nodes, routers and senders that users wrote. What each returned is kept, and a replay takes that: their
code doesn't run there.
"""

import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from inspect import signature, unwrap
from pathlib import Path
from typing import Any

from langgraph.errors import GraphBubbleUp
from langgraph.runtime import Runtime

from interlock.graphs.foreign_node_sources import function_code_digest
from interlock.nodes.effects import node_path
from interlock.state.deps import Deps
from interlock.state.errors import RunError, exception_line
from interlock.state.journal import NodeUpdate
from interlock.state.run import BY_PROCESS
from interlock.state.text import to_jsonable

_HERE = Path(__file__).parents[1]


@cache
def is_interlock_function(function: Callable[..., Any]) -> bool:
    """Whether Interlock itself ships a function."""
    code = getattr(function, "__code__", None)
    module = str(getattr(function, "__module__", ""))
    return code is not None and module.startswith("interlock.") and _HERE in Path(code.co_filename).parents


async def run_or_replay_node(
    function: Callable[..., Awaitable[Any]], state: Mapping[str, Any], runtime: Runtime[Deps]
) -> Any:
    """Return the node's update: what its function writes, or in a replay what the record has of this state.

    Raises `RunError` in a replay for a node that changed, that the record has nothing of, or that raised.
    """
    return await _call_or_replay(function, lambda: call_node(function, state, runtime), state, runtime)


async def route_or_replay(
    function: Callable[[Any], Any], state: Mapping[str, Any], runtime: Runtime[Deps]
) -> Any:
    """As `run_or_replay_node`, of a router or a sender."""

    async def chosen() -> Any:
        return function(state)

    return await _call_or_replay(function, chosen, state, runtime)


async def _call_or_replay(
    function: Callable[..., Any],
    call: Callable[[], Awaitable[Any]],
    state: Mapping[str, Any],
    runtime: Runtime[Deps],
) -> Any:
    info = runtime.execution_info
    theirs = unwrap(function) if is_interlock_function(function) else function
    if is_interlock_function(theirs) or info is None:
        return await call()
    effects, name = runtime.context.effects, getattr(theirs, "__name__", type(theirs).__name__)
    update = NodeUpdate(node_path(info), name, function_code_digest(theirs), _state_digest(state))
    if (found := effects.find_recorded_node_update(info.task_id, update)) is not None:
        if found.raised:
            raise RunError(found.raised)
        return found.wrote
    try:
        wrote = await call()
    except GraphBubbleUp:  # it waits for a person
        raise
    except Exception as error:
        effects.record_node_update(info.task_id, update._replace(raised=exception_line(error, 1_000)))
        raise
    effects.record_node_update(info.task_id, update._replace(wrote=wrote))
    return wrote


def call_node(
    function: Callable[..., Awaitable[Any]], state: Mapping[str, Any], runtime: Runtime[Deps]
) -> Awaitable[Any]:
    """Call the node with the state, and with the runtime if it takes one."""
    return function(state, runtime) if _accepts_runtime(function) else function(state)


@cache
def _accepts_runtime(function: Callable[..., Any]) -> bool:
    return "runtime" in signature(function).parameters


def _state_digest(state: Mapping[str, Any]) -> str:
    """What tells the states apart that a node was given."""
    given = {key: value for key, value in state.items() if key not in BY_PROCESS}
    text = json.dumps(to_jsonable(given), sort_keys=True, default=str)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]
