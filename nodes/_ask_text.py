"""_ask_text: ask a helper model for a text. Whatever goes wrong is an event, and no answer; the turn goes on."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Literal, NamedTuple

from langgraph.runtime import Runtime

from interlock.state.deps import Deps
from interlock.state.errors import ModelError, RunError, UserError
from interlock.state.messages import Message
from interlock.state.models import ModelCall, Reply
from interlock.state.turn_events import HelperFailed


@dataclass(frozen=True)
class Request:
    """What a helper is asked."""

    role: str
    messages: Sequence[Message]
    """System message first; the last one asks."""
    head: str
    """Chain head that the reply is recorded after."""
    timeout_s: float
    """For everything: all attempts, and the waits between them."""
    attempts: int


class Told(NamedTuple):
    """`record` holds the answer when there is one."""

    how: Literal["answered", "failed", "cancelled"]
    record: str = ""


async def ask_text(request: Request, runtime: Runtime[Deps]) -> Told:
    """A whole answer that isn't blank, or none. A broken script raises."""
    if runtime.execution_info is None:
        raise RunError(f"{request.role} was asked outside a graph.")
    call = ModelCall(
        task=runtime.execution_info.task_id,
        role=request.role,
        head=request.head,
        messages=request.messages,
        attempts=request.attempts,
    )
    try:
        async with asyncio.timeout(request.timeout_s):
            reply = await _reply(call, runtime)
    except TimeoutError:
        problem = f"no answer within {request.timeout_s:g} s"
    except (ModelError, UserError) as error:  # UserError: no key for the role's model, or none of its package
        problem = str(error)
    else:
        if reply is None:
            return Told("cancelled")
        problem = _problem(reply)
        if not problem:
            return Told("answered", reply.record)
    runtime.stream_writer(HelperFailed(role=request.role, reason=problem))
    return Told("failed")


async def _reply(call: ModelCall, runtime: Runtime[Deps]) -> Reply | None:
    async with aclosing(runtime.context.models.stream(call, runtime.stream_writer)) as items:
        async for item in items:
            if isinstance(item, Reply):
                return item
    return None


def _problem(reply: Reply) -> str:
    """Why the answer can't be used; empty: it can."""
    if reply.problem:
        return reply.problem
    if not reply.message.text.strip():
        return "the answer is empty"
    return "the answer is cut off" if reply.finish_reason in (None, "length") else ""
