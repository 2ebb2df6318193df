"""_helper: one request to a helper model, and its whole answer."""

from contextlib import aclosing

from langgraph.runtime import Runtime

from interlock.state.deps import Deps
from interlock.state.errors import RunError
from interlock.state.models import ModelCall, Reply


def task_of(runtime: Runtime[Deps], role: str) -> str:
    """The graph task that asks: a reply is recorded by it, so that a kill doesn't pay twice."""
    if runtime.execution_info is None:
        raise RunError(f"{role} was asked outside a graph.")
    return runtime.execution_info.task_id


async def reply_to(call: ModelCall, runtime: Runtime[Deps]) -> Reply | None:
    """None when it was cancelled. Raises what the model raises."""
    async with aclosing(runtime.context.models.stream(call, runtime.stream_writer)) as items:
        async for item in items:
            if isinstance(item, Reply):
                return item
    return None


def unusable(reply: Reply) -> str:
    """Why the answer can't be used; empty: it can."""
    if reply.problem:
        return reply.problem
    if not reply.message.text.strip():
        return "the answer is empty"
    return "the answer is cut off" if reply.finish_reason in (None, "length") else ""
