"""workflow: nodes of user workflows: ask models, place calls, start agents' tasks, ask a person."""

import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar, overload

from langgraph.runtime import Runtime
from pydantic import BaseModel, JsonValue

from interlock.nodes.helper_model import parse_json_as, request_reply, unusable_reply_reason
from interlock.nodes.requests import require_request_and_answer, write_request_and_route
from interlock.nodes.tools_results import record_person_decision, require_recorded_result
from interlock.prompts import load_prompt
from interlock.state.calls import ApprovalRequest, CallKey, CallView, Choice, RequestKind, ToolResult
from interlock.state.deps import Deps
from interlock.state.errors import RunError, UserError
from interlock.state.journal import Journal
from interlock.state.messages import Message, ModelCall, ToolCall
from interlock.state.node import node, require_task_id
from interlock.state.text import clean_json, replace_surrogates

T = TypeVar("T", bound=BaseModel)
CALLS = ("message", "count")
"""Keys of `ToolState` that a node must read to use `results`."""


@overload
async def ask_model(
    runtime: Runtime[Deps], prompt: str, *, system: str = "", role: str = "main", attempts: int = 2
) -> str: ...
@overload
async def ask_model(
    runtime: Runtime[Deps],
    prompt: str,
    *,
    system: str = "",
    role: str = "main",
    attempts: int = 2,
    schema: type[T],
) -> T: ...
async def ask_model(
    runtime: Runtime[Deps],
    prompt: str,
    *,
    system: str = "",
    role: str = "main",
    attempts: int = 2,
    schema: type[T] | None = None,
) -> str | T:
    """Ask a model once: returns its text or, with `schema` (a pydantic model), JSON of that shape.

    The answer is recorded with the run: a node that reruns after a kill, or asks the same again, gets it without
    another request. `role`: which model answers, per `model.roles` in settings; any other name means the run's own
    model (`-m`), and lets scripted replies be matched. `attempts`: requests while the answer is empty, truncated or of
    the wrong shape. Raises `RunError` if none is usable, `ModelError` after the last retry of a connection.
    """
    messages = [Message(role="system", content=system)] if system else []
    messages.append(Message(role="user", content=replace_surrogates(prompt)))
    shape = schema.model_json_schema() if schema else None
    digest = _digest_values([role, system, prompt, shape])
    problem, fresh, number = "", 0, 0
    while fresh < max(1, attempts):  # answers of an earlier drive don't count: the run would fail for ever
        task = f"{require_task_id(runtime, 'A model')}#{digest}.{number}"
        call = ModelCall(task=task, role=role, head="", messages=messages, schema=shape)
        reply = await request_reply(call, runtime)
        fresh, number = fresh + (not reply.replayed), number + 1
        if problem := unusable_reply_reason(reply):
            continue
        if schema is None:
            return reply.message.text
        if (answer := parse_json_as(reply.message.text, schema)) is not None:
            return answer
        problem = f"it is no {schema.__name__}"
    raise RunError(
        f"The model's answer (role {role!r}) can't be used: {problem}. Try again with: interlock resume"
    )


def call(name: str, **args: JsonValue) -> ToolCall:
    """A tool call for `place_calls`; names and arguments as listed by `interlock tools`."""
    return ToolCall(id="", name=name, args=args)


def place_calls(state: Mapping[str, Any], runtime: Runtime[Deps], *calls: ToolCall) -> str:
    """Append these calls to the conversation; write the result to `head` and route to `g.subgraph(…, tools)`.

    There each is decided by policy and people, run and journaled, like a model's; none runs twice unnoticed. Raises
    `UserError` if there are no calls.
    """
    if not calls:
        raise UserError("place_calls needs a call at least.")
    transcript, head = runtime.context.transcript, str(state.get("head") or "")
    ordinal = len(transcript.record_ids(head)) if head else 0
    text = load_prompt("run/placed_calls").render()
    if not head:  # identical calls from two branches are distinct
        text = f"{text} [{_digest_values([_node_name(runtime), dict(state)])}]"
    named = tuple(
        c.model_copy(update={"id": f"{ordinal}.{i}", "args": clean_json(c.args)}) for i, c in enumerate(calls)
    )
    opening = Message(role="user", origin="context", content=text)
    return transcript.append(head, [opening, Message(role="assistant", tool_calls=named)])


def results(state: Mapping[str, Any], runtime: Runtime[Deps]) -> list[ToolResult]:
    """Results of the last `g.subgraph(…, tools)`, in order of the calls. The node must read `CALLS`.

    `status` is success, error or cancelled; for shell commands `meta["exit_code"]` is a number, absent if 0.
    """
    journal, calls = runtime.context.journal, range(state["count"])
    return [
        require_recorded_result(
            journal, _last_attempt_key(journal, CallKey(message=state["message"], index=i))
        )
        for i in calls
    ]


def _last_attempt_key(journal: Journal, key: CallKey) -> CallKey:
    """Later attempts exist if people or hooks changed the arguments or chose redo."""
    while journal.find_row(key.next_attempt, journal.read_call(key.next_attempt)) is not None:
        key = key.next_attempt
    return key


def make_agent_begin_node(task_key: str) -> Any:
    """A node that makes the text under `task_key` an agent's prompt."""

    @node(reads=(task_key, "head"), writes=("prompt", "head", "session_turns", "last_prompt_tokens"))
    async def begin(state: Any, runtime: Runtime[Deps]) -> Any:
        prompt = Message(role="user", origin="person", content=replace_surrogates(str(state[task_key])))
        return {
            "prompt": runtime.context.transcript.append("", [prompt]),
            "head": state.get("head") or "",
            "session_turns": 0,
            "last_prompt_tokens": 0,
        }

    return begin


def make_agent_end_node(answer_key: str) -> Any:
    """A node that takes an agent's answer from its conversation."""

    @node(reads=("head", "status", "error"), writes=(answer_key,), labels=("done", "failed"))
    async def end(state: Any, runtime: Runtime[Deps]) -> Any:
        if state["status"] != "done":
            error: dict[str, str] = state.get("error") or {}
            why = error.get("message") or f"The agent ended as {state['status']!r}."
            return {"label": "failed", answer_key: why}
        texts = (m.text for m in reversed(runtime.context.transcript.read(state["head"])))
        return {"label": "done", answer_key: next(filter(None, texts), "")}

    return end


def _node_name(runtime: Runtime[Deps]) -> str:
    info = runtime.execution_info
    return info.checkpoint_ns.rpartition("|")[2].partition(":")[0] if info else ""


def _digest_values(values: Sequence[Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True, default=str).encode()).hexdigest()[:12]


Node = Callable[..., Awaitable[Any]]


def make_ask_node(kind: RequestKind, question: str, shown_key: str, options: Sequence[str]) -> Node:
    """A node that writes the request: `question`, with the text that the state has under `shown_key`."""
    choices: tuple[Choice, ...] = ("proceed_once", "reject")
    if kind == "approval" and shown_key:
        choices = ("proceed_once", "modify", "reject")

    @node(reads=("hooked", *filter(None, [shown_key])), writes=("approval",), labels=("asked", "notify"))
    async def ask(state: Any, runtime: Runtime[Deps]) -> Any:
        # A new key each time the graph gets here; the same after a kill.
        key = CallKey(message=require_task_id(runtime, "A person"), index=0)
        text = str(state.get(shown_key, "")) if shown_key else ""
        args: dict[str, JsonValue] = {shown_key: text} if shown_key else {}
        asks = kind == "question"
        request = ApprovalRequest(
            attempt=key,
            kind=kind,
            call=CallView(id=str(key), name="ask_person" if asks else "approve", args=args),
            reason=question,
            preview=text,
            choices=choices,
            parameters=(*args,),
            questions=({"question": f"{question}\n\n{text}".strip(), "options": [*options]},) if asks else (),
        )
        return write_request_and_route(runtime, state, request)

    return ask


def make_take_approval_node(shown_key: str, feedback_key: str) -> Node:
    """A node that reads the answer; the person may have edited the text shown."""

    @node(
        reads=("approval",),
        writes=(feedback_key, *filter(None, [shown_key])),
        labels=("approved", "rejected"),
    )
    async def take(state: Any, runtime: Runtime[Deps]) -> Any:
        request, answer = require_request_and_answer(runtime.context, state["approval"])
        record_person_decision(runtime, CallKey.parse(request.call.id), request.key, answer)
        label = "rejected" if answer.choice == "reject" else "approved"
        update = {"label": label, feedback_key: answer.feedback or ""}
        if answer.choice == "modify":
            update[shown_key] = str((answer.args or {}).get(shown_key, request.preview))
        return update

    return take


def make_take_answer_node(answer_key: str, options: Sequence[str]) -> Node:
    """A node that reads the answer. With options, only one of them is accepted: other answers are asked again."""
    own = (*options, "again") if options else ("answered",)

    @node(reads=("approval",), writes=(answer_key,), labels=(*own, "declined"))
    async def take(state: Any, runtime: Runtime[Deps]) -> Any:
        request, answer = require_request_and_answer(runtime.context, state["approval"])
        record_person_decision(runtime, CallKey.parse(request.call.id), request.key, answer)
        text = (answer.text or "").strip()
        if answer.choice == "reject":
            return {"label": "declined", answer_key: ""}
        if not options:
            return {"label": "answered", answer_key: text}
        chosen = next((option for option in options if option.casefold() == text.casefold()), None)
        return {"label": chosen or "again", answer_key: chosen or ""}

    return take
