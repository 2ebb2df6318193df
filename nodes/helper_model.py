"""helper_model: ask a helper model for text, or for JSON of a given shape."""

import asyncio
import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from langgraph.runtime import Runtime
from pydantic import BaseModel, ValidationError

from interlock.state.deps import Deps
from interlock.state.errors import ModelError, RunError, UserError
from interlock.state.events import HelperFailed
from interlock.state.messages import Message, ModelCall, Reply
from interlock.state.node import task_of


@dataclass(frozen=True)
class Question:
    """What a helper model is asked."""

    role: str
    """classifier, next_speaker, …; settings map it to an alias."""
    messages: Sequence[Message]
    """System message first; the last one asks."""
    head: str
    """Chain head after which the reply is recorded."""
    timeout_s: float
    """Total timeout: all attempts and the waits between them."""
    attempts: int = 2
    """Connection attempts per request, and requests until an answer has the right JSON shape."""


def asking(system: str, task: str, history: Sequence[Message] = ()) -> list[Message]:
    """The messages of a question about a conversation."""
    return [Message(role="system", content=system), *history, Message(role="user", content=task)]


R = TypeVar("R")
T = TypeVar("T", bound=BaseModel)
_FENCED = re.compile(r"```\w*\s(.*)```", re.DOTALL)


class Answered(NamedTuple, Generic[T]):
    """A helper's answer and the chain record containing it."""

    record: str
    answer: T


async def reply_to(call: ModelCall, runtime: Runtime[Deps]) -> Reply:
    """Raises whatever the model raises."""
    async with aclosing(runtime.context.models.stream(call, runtime.stream_writer)) as items:
        async for item in items:
            if isinstance(item, Reply):
                return item
    raise RunError(f"The answer to {call.role!r} ended without a reply.")


def unusable(reply: Reply) -> str:
    """Why the answer is unusable; empty: it is usable."""
    if reply.problem:
        return reply.problem
    if not reply.message.text.strip():
        return "the answer is empty"
    return "the answer is cut off" if reply.finish_reason in (None, "length") else ""


async def ask_text(question: Question, runtime: Runtime[Deps]) -> str:
    """Chain record of a complete, non-blank answer; empty: none. A broken script raises."""
    return await _ask(question, runtime, lambda reply: reply.record) or ""


async def ask_json(question: Question, kind: type[T], runtime: Runtime[Deps]) -> Answered[T] | None:
    """The answer as JSON of shape `kind`; None if there is none, for any reason but a broken script."""

    def answered(reply: Reply) -> Answered[T] | None:
        answer = parsed(reply.message.text, kind)
        return Answered(reply.record, answer) if answer else None

    return await _ask(question, runtime, answered, kind)


async def _ask(
    question: Question,
    runtime: Runtime[Deps],
    taken: Callable[[Reply], R | None],
    kind: type[BaseModel] | None = None,
) -> R | None:
    """The first usable reply, parsed by `taken`; JSON of the wrong shape is requested again."""
    task = task_of(runtime, question.role)
    schema = kind.model_json_schema() if kind else None
    problem = "no attempt was allowed"
    try:
        async with asyncio.timeout(question.timeout_s):
            for attempt in range(question.attempts if kind else 1):
                # Replies are recorded by task, so each request of this node needs its own name.
                name = f"{task}#{attempt}" if attempt else task
                reply = await reply_to(_call(question, name, schema), runtime)
                problem = unusable(reply)
                if not problem and (answer := taken(reply)):
                    return answer
                problem = problem or f"the answer is no {kind.__name__ if kind else 'text'}"
    except TimeoutError:
        problem = f"no answer within {question.timeout_s:g} s"
    except (ModelError, UserError) as error:  # UserError: no key for the role, or no package
        problem = str(error)
    runtime.stream_writer(HelperFailed(role=question.role, reason=problem))
    return None


def parsed(text: str, kind: type[T]) -> T | None:
    """The JSON object in `text`, bare or in one fenced block; None if it isn't of shape `kind`."""
    text = text.strip()
    fenced = _FENCED.fullmatch(text)
    try:
        value: Any = json.loads(fenced[1] if fenced else text)
        return kind.model_validate(value) if isinstance(value, dict) else None
    except (ValueError, RecursionError, ValidationError):
        return None


def _call(question: Question, task: str, schema: Mapping[str, Any] | None) -> ModelCall:
    return ModelCall(
        task=task,
        role=question.role,
        head=question.head,
        messages=question.messages,
        schema=schema,
        attempts=question.attempts,
    )
