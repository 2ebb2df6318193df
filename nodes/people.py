"""people: nodes that put something before a person: an approval, or a question."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from langgraph.runtime import Runtime
from pydantic import JsonValue

from interlock.nodes.helper_model import task_of
from interlock.nodes.hooks import asked
from interlock.nodes.tools_results import answered, note_person, put_request
from interlock.state.calls import ApprovalRequest, CallKey, CallView, Choice, RequestKind
from interlock.state.deps import Deps
from interlock.state.node import node

Node = Callable[..., Awaitable[Any]]


def put_before_person(kind: RequestKind, question: str, show: str, options: Sequence[str]) -> Node:
    """A node that writes the request: `question`, with the text that the state holds under `show`."""
    choices: tuple[Choice, ...] = ("proceed_once", "reject")
    if kind == "approval" and show:
        choices = ("proceed_once", "modify", "reject")

    @node(reads=("hooked", *filter(None, [show])), writes=("approval",), labels=("asked", "notify"))
    async def ask(state: Any, runtime: Runtime[Deps]) -> Any:
        # A task of its own each time that the graph comes here; the same after a kill.
        key = CallKey(message=task_of(runtime, "A person"), index=0)
        text = str(state.get(show, "")) if show else ""
        args: dict[str, JsonValue] = {show: text} if show else {}
        asks = kind == "question"
        request = ApprovalRequest(
            key=f"{key}:approval:1",
            kind=kind,
            call=CallView(id=str(key), name="ask_person" if asks else "approve", args=args),
            reason=question,
            preview=text,
            choices=choices,
            questions=({"question": f"{question}\n\n{text}".strip(), "options": [*options]},) if asks else (),
        )
        put_request(runtime, request)
        return {"label": asked(state), "approval": request.key}

    return ask


def take_approval(show: str, feedback: str) -> Node:
    """A node that reads the answer; a person may have changed the text that was shown."""

    @node(
        reads=("approval",),
        writes=(feedback, *filter(None, [show])),
        labels=("approved", "rejected"),
    )
    async def take(state: Any, runtime: Runtime[Deps]) -> Any:
        request, answer = answered(runtime.context, state["approval"])
        note_person(runtime, CallKey.parse(request.call.id), request.key, answer)
        label = "rejected" if answer.choice == "reject" else "approved"
        update = {"label": label, feedback: answer.feedback or ""}
        if answer.choice == "modify":
            update[show] = str((answer.args or {}).get(show, request.preview))
        return update

    return take


def take_answer(answer_key: str, options: Sequence[str]) -> Node:
    """A node that reads the answer. With options only one of those will do: another is asked about again."""
    own = (*options, "again") if options else ("answered",)

    @node(reads=("approval",), writes=(answer_key,), labels=(*own, "declined"))
    async def take(state: Any, runtime: Runtime[Deps]) -> Any:
        request, answer = answered(runtime.context, state["approval"])
        note_person(runtime, CallKey.parse(request.call.id), request.key, answer)
        text = (answer.text or "").strip()
        if answer.choice == "reject":
            return {"label": "declined", answer_key: ""}
        if not options:
            return {"label": "answered", answer_key: text}
        chosen = next((option for option in options if option.casefold() == text.casefold()), None)
        return {"label": chosen or "again", answer_key: chosen or ""}

    return take
