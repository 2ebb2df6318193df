"""_ask: one question to a helper model. Its failure is no answer; it never breaks an edit."""

from contextlib import aclosing

from langgraph.runtime import Runtime

from interlock.nodes.edit._subject import Answer, SubjectIn, answered
from interlock.state.deps import Deps
from interlock.state.edit import FIXER_TIMEOUT_S
from interlock.state.errors import ModelError, RunError, UserError
from interlock.state.events import ErrorEvent
from interlock.state.messages import Message
from interlock.state.models import ModelCall, Reply
from interlock.tools._matching import excerpt

_MOST_TEXT = 120_000
"""Characters of a file that a helper is shown: about 30,000 tokens."""


async def ask(
    runtime: Runtime[Deps], state: SubjectIn, role: str, kind: type[Answer], prompt: tuple[str, str]
) -> tuple[str, Answer] | None:
    """The record of the answer, and the answer; one attempt."""
    info = runtime.execution_info
    if info is None:
        raise RunError(f"{role} was asked outside a graph.")
    system, user = prompt
    call = ModelCall(
        task=info.task_id,
        role=role,
        head=state["message"],
        messages=[Message(role="system", content=system), Message(role="user", content=user)],
        schema=kind.model_json_schema(),
        timeout_s=FIXER_TIMEOUT_S,
        attempts=1,
    )
    try:
        reply = await _reply(runtime, call)
    except (ModelError, UserError) as error:  # UserError: no such model, or none of its package
        runtime.stream_writer(ErrorEvent(severity="warning", message=f"{role}: {error}"))
        return None
    if reply is None or reply.problem or reply.finish_reason != "stop":
        return None
    answer = answered(kind, reply.message.text)
    return None if answer is None else (reply.record, answer)


async def _reply(runtime: Runtime[Deps], call: ModelCall) -> Reply | None:
    async with aclosing(runtime.context.models.stream(call, runtime.stream_writer)) as items:
        async for item in items:
            if isinstance(item, Reply):
                return item
    return None


def shown_text(text: str, old: str) -> str:
    """The whole text, or of a long one what is around the lines that are most like `old`."""
    return text if len(text) <= _MOST_TEXT else excerpt(text, old, _MOST_TEXT)
