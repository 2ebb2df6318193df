"""langgraph_node: a graph of LangGraph as one node of ours."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

from langgraph.config import get_config
from langgraph.errors import GraphInterrupt
from langgraph.runtime import Runtime

from interlock.graphs.foreign_node_results import NodeCompletionTracker
from interlock.graphs.foreign_node_sources import graph_code_digest
from interlock.graphs.langgraph_internals import (
    copy_graph_with_saver,
    ensure_compiled_graph,
    input_field_types,
)
from interlock.graphs.node_contract import cached_type_hints
from interlock.nodes.current_run import DRIVE, CurrentDrive
from interlock.nodes.effects import effect
from interlock.state.deps import Deps
from interlock.state.errors import RunError, SetupError
from interlock.state.node import node

Node = Callable[..., Awaitable[Any]]


def make_langgraph_node(where: str, graph: Any, state: type) -> Node:
    """A graph of LangGraph as one node: it gets and gives the keys that both states have, and a kill repeats it whole.

    Raises `SetupError` if they share none.
    """
    compiled = copy_graph_with_saver(ensure_compiled_graph(graph), False, None)
    ours, theirs = cached_type_hints(state), input_field_types(compiled) or {}
    reads = tuple(key for key in theirs if key in ours)
    writes = tuple(key for key in compiled.output_channels if key in ours)
    if not (reads and writes):
        raise SetupError(f"{where} and {state.__name__} share no key, so nothing can be handed over.")

    # Its result is kept, so that a replay doesn't run it; of another code than today's there is none.
    name = f"graph#{graph_code_digest(compiled)}"

    @node(reads=reads, writes=writes)
    async def part(state: Any, runtime: Runtime[Deps]) -> Any:
        return await effect(runtime, name, driven, state, runtime, idempotent=True)

    async def driven(state: Any, runtime: Runtime[Deps]) -> Any:
        token = DRIVE.set(CurrentDrive(runtime.context, asyncio.get_running_loop()))
        try:
            given = {key: state[key] for key in reads if key in state}
            ends = NodeCompletionTracker(runtime.context, has_callbacks=False)
            left = await ends.await_graph_and_nodes(
                compiled.ainvoke(given, cast(Any, ends.with_task_submitter(get_config())))
            )
        except GraphInterrupt as asked:
            raise RunError(
                f"{where} called interrupt(), which a graph of LangGraph can't do as a part. Ask with approve(…) or "
                "ask_person(…), or run that graph as a workflow of its own."
            ) from asked
        finally:
            DRIVE.reset(token)
        return {key: left[key] for key in writes if key in left}

    return part
