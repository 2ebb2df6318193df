"""_ask_text: ask a helper model for a text. Whatever goes wrong is an event, and no answer; the turn goes on."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from langgraph.runtime import Runtime

from interlock.nodes._helper import reply_to, task_of, unusable
from interlock.state.deps import Deps
from interlock.state.errors import ModelError, UserError
from interlock.state.messages import Message
from interlock.state.models import ModelCall
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
    call = ModelCall(
        task=task_of(runtime, request.role),
        role=request.role,
        head=request.head,
        messages=request.messages,
        attempts=request.attempts,
    )
    try:
        async with asyncio.timeout(request.timeout_s):
            reply = await reply_to(call, runtime)
    except TimeoutError:
        problem = f"no answer within {request.timeout_s:g} s"
    except (ModelError, UserError) as error:  # UserError: no key for the role's model, or none of its package
        problem = str(error)
    else:
        if reply is None:
            return Told("cancelled")
        problem = unusable(reply)
        if not problem:
            return Told("answered", reply.record)
    runtime.stream_writer(HelperFailed(role=request.role, reason=problem))
    return Told("failed")
