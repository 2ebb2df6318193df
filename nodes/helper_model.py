"""helper_model: how nodes ask a helper model: for a text, or for JSON of a known shape."""

import asyncio
import json
import re
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from langgraph.runtime import Runtime
from pydantic import BaseModel, ValidationError

from interlock.state.deps import Deps
from interlock.state.errors import ModelError, RunError, UserError
from interlock.state.events import HelperFailed
from interlock.state.messages import Message
from interlock.state.models import ModelCall, Reply


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


class TextAnswer(NamedTuple):
    """`record` holds the answer when there is one."""

    how: Literal["answered", "failed"]
    record: str = ""


T = TypeVar("T", bound=BaseModel)

_FENCED = re.compile(r"```\w*\s(.*)```", re.DOTALL)


@dataclass(frozen=True)
class Question(Generic[T]):
    """What a helper is asked. The answer is JSON of the shape `kind`."""

    role: str
    """classifier, next_speaker, …; maps to an alias in settings."""
    kind: type[T]
    messages: Sequence[Message]
    """System message first; the last one asks."""
    head: str
    """Chain head that the reply is recorded after."""
    timeout_s: float
    """For everything: all attempts, and the waits between them."""
    attempts: int = 2
    """Connections of one request, and requests while the answer isn't of the shape."""


class Answered(NamedTuple, Generic[T]):
    """A helper's answer, and the chain record that holds it."""

    record: str
    answer: T


def task_of(runtime: Runtime[Deps], role: str) -> str:
    """The graph task that asks: a reply is recorded by it, so that a kill doesn't pay twice."""
    if runtime.execution_info is None:
        raise RunError(f"{role} was asked outside a graph.")
    return runtime.execution_info.task_id


async def reply_to(call: ModelCall, runtime: Runtime[Deps]) -> Reply:
    """Raises what the model raises."""
    async with aclosing(runtime.context.models.stream(call, runtime.stream_writer)) as items:
        async for item in items:
            if isinstance(item, Reply):
                return item
    raise RunError(f"The answer to {call.role!r} ended without a reply.")


def unusable(reply: Reply) -> str:
    """Why the answer can't be used; empty: it can."""
    if reply.problem:
        return reply.problem
    if not reply.message.text.strip():
        return "the answer is empty"
    return "the answer is cut off" if reply.finish_reason in (None, "length") else ""


async def ask_text(request: Request, runtime: Runtime[Deps]) -> TextAnswer:
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
        problem = unusable(reply)
        if not problem:
            return TextAnswer("answered", reply.record)
    runtime.stream_writer(HelperFailed(role=request.role, reason=problem))
    return TextAnswer("failed")


async def ask_json(question: Question[T], runtime: Runtime[Deps]) -> Answered[T] | None:
    """The answer; None when there is none, for any reason but a broken script."""
    task = task_of(runtime, question.role)
    problem = "no attempt was allowed"
    try:
        async with asyncio.timeout(question.timeout_s):
            for attempt in range(question.attempts):
                # A reply is recorded by task: each request of this node gets a name of its own.
                name = f"{task}#{attempt}" if attempt else task
                reply = await reply_to(_call(question, name), runtime)
                problem = unusable(reply)
                if not problem and (answer := parsed(reply.message.text, question.kind)):
                    return Answered(reply.record, answer)
                problem = problem or f"the answer is no {question.kind.__name__}"
    except TimeoutError:
        problem = f"no answer within {question.timeout_s:g} s"
    except (ModelError, UserError) as error:  # UserError: no key for the role's model, or none of its package
        problem = str(error)
    runtime.stream_writer(HelperFailed(role=question.role, reason=problem))
    return None


def parsed(text: str, kind: type[T]) -> T | None:
    """The JSON object in `text`, alone or as a whole fenced block; None when it isn't of the shape `kind`."""
    text = text.strip()
    fenced = _FENCED.fullmatch(text)
    try:
        value: Any = json.loads(fenced[1] if fenced else text)
        return kind.model_validate(value) if isinstance(value, dict) else None
    except (ValueError, RecursionError, ValidationError):
        return None


def _call(question: Question[Any], task: str) -> ModelCall:
    return ModelCall(
        task=task,
        role=question.role,
        head=question.head,
        messages=question.messages,
        schema=question.kind.model_json_schema(),
        attempts=question.attempts,
    )
