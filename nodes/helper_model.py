"""helper_model: ask a helper model for text, or for JSON of a given shape."""

import asyncio
import json
import re
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Generic, NamedTuple, TypeVar

from langgraph.runtime import Runtime
from pydantic import BaseModel, ValidationError

from interlock.state.deps import Deps
from interlock.state.errors import ModelError, RunError, UserError
from interlock.state.events import HelperFailed
from interlock.state.messages import Message, ModelCall, Reply
from interlock.state.node import require_task_id


def build_question_messages(system: str, task: str, history: Sequence[Message] = ()) -> list[Message]:
    """The messages of a question about a conversation."""
    return [Message(role="system", content=system), *history, Message(role="user", content=task)]


R = TypeVar("R")
T = TypeVar("T", bound=BaseModel)
_FENCED = re.compile(r"```\w*\s(.*)```", re.DOTALL)


class HelperAnswer(NamedTuple, Generic[T]):
    """A helper's answer and the chain record containing it."""

    record: str
    answer: T


async def request_reply(call: ModelCall, runtime: Runtime[Deps]) -> Reply:
    """Raises whatever the model raises."""
    async with aclosing(runtime.context.models.stream(call, runtime.stream_writer)) as items:
        async for item in items:
            if isinstance(item, Reply):
                return item
    raise RunError(f"The answer to {call.role!r} ended without a reply.")


def unusable_reply_reason(reply: Reply) -> str:
    """Why the answer is unusable; empty: it is usable."""
    if reply.problem:
        return reply.problem
    if not reply.message.text.strip():
        return "the answer is empty"
    return "the answer is cut off" if reply.finish_reason in (None, "length") else ""


async def ask_for_text_record(
    runtime: Runtime[Deps], role: str, messages: Sequence[Message], head: str, timeout_s: float, attempts: int
) -> str:
    """As `ask_json`, for a complete, non-blank answer of any form: its chain record; empty: none."""
    call = ModelCall(require_task_id(runtime, role), role, head, messages, attempts=attempts)
    return await _ask_until_usable(runtime, [call], timeout_s, "text", lambda reply: reply.record) or ""


async def ask_json(
    runtime: Runtime[Deps],
    answer_type: type[T],
    role: str,
    messages: Sequence[Message],
    head: str,
    timeout_s: float,
    attempts: int = 2,
) -> HelperAnswer[T] | None:
    """The answer as JSON of shape `kind`; None if there is none, for any reason but a broken script.

    `messages`: the system message first; the last one asks. The reply is recorded after `head`. `timeout_s`: for all
    attempts and the waits between them. `attempts`: to connect, per request, and requests until the shape is right.
    """
    task, schema = require_task_id(runtime, role), answer_type.model_json_schema()
    # Replies are recorded by task, so each request of this node needs its own name.
    names = [f"{task}#{attempt}" if attempt else task for attempt in range(attempts)]
    calls = [ModelCall(name, role, head, messages, schema=schema, attempts=attempts) for name in names]

    def answered(reply: Reply) -> HelperAnswer[T] | None:
        answer = parse_json_as(reply.message.text, answer_type)
        return HelperAnswer(reply.record, answer) if answer else None

    return await _ask_until_usable(runtime, calls, timeout_s, answer_type.__name__, answered)


async def _ask_until_usable(
    runtime: Runtime[Deps],
    calls: Sequence[ModelCall],
    timeout_s: float,
    answer_kind: str,
    parse: Callable[[Reply], R | None],
) -> R | None:
    """The first usable reply to one of the calls, parsed by `taken`."""
    problem = ""
    try:
        async with asyncio.timeout(timeout_s) as limit:
            for call in calls:
                left_s = (limit.when() or 0) - asyncio.get_running_loop().time()
                reply = await request_reply(replace(call, timeout_s=left_s), runtime)
                problem = unusable_reply_reason(reply)
                if not problem and (answer := parse(reply)):
                    return answer
                problem = problem or f"the answer is no {answer_kind}"
    except TimeoutError:
        problem = f"no answer within {timeout_s:g} s"
    except (ModelError, UserError) as error:  # UserError: no key for the role, or no package
        problem = str(error)
    runtime.stream_writer(HelperFailed(role=calls[0].role, reason=problem))
    return None


def parse_json_as(text: str, answer_type: type[T]) -> T | None:
    """The JSON object in `text`, bare or in one fenced block; None if it isn't of shape `kind`."""
    text = text.strip()
    fenced = _FENCED.fullmatch(text)
    try:
        value: Any = json.loads(fenced[1] if fenced else text)
        return answer_type.model_validate(value) if isinstance(value, dict) else None
    except (ValueError, RecursionError, ValidationError):
        return None
