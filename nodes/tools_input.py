"""tools_input: a call whose MCP server asks a person for input: asked, and made again with the answer."""

from typing import Literal

from langgraph.runtime import Runtime

from interlock.nodes.hooks import asked
from interlock.nodes.tools_results import (
    CALL,
    answered,
    attempt_at,
    moved,
    note_person,
    put_request,
    recorded,
    rejected,
)
from interlock.state.calls import ApprovalRequest
from interlock.state.deps import Deps
from interlock.state.form import FilledForm, Form
from interlock.state.messages import Message
from interlock.state.node import node
from interlock.state.tools import ExecuteState
from interlock.tools._form import questions_of, values_of

INPUT_WANTED = "input_wanted"
"""Error type of an attempt that failed for want of input; its `meta` holds the form."""


def given_input(deps: Deps, state: ExecuteState) -> tuple[FilledForm, ...]:
    """What was answered so far, over all attempts."""
    record = state.get("given", "")
    lines = deps.transcript.message(record).text.splitlines() if record else ()
    return tuple(map(FilledForm.model_validate_json, lines))


@node(
    reads=(*CALL, "asks", "input_problem", "hooked"), writes=("approval", "asks"), labels=("asked", "notify")
)
async def ask_input(state: ExecuteState, runtime: Runtime[Deps]) -> ExecuteState:
    """The server's words are the server's: the reason says whose they are, and what an answer does."""
    deps, key, call = attempt_at(state, runtime)
    asks = (state.get("asks") or 0) + 1
    form = Form.model_validate(recorded(deps.journal, key).meta["form"])
    several = "; as a JSON object" if len(form.fields) > 1 else ""
    request = ApprovalRequest(
        key=f"{key}:input:{asks}",
        kind="question",
        call=call,
        reason=f"The MCP server that does {deps.toolset.summary(call)!r} asks for this, and gets your answer{several}. "
        "The call failed without, and is then made again. Reject to leave it.",
        preview="",
        choices=("proceed_once", "reject"),
        questions=questions_of(form),
        note=state.get("input_problem") or None,
    )
    put_request(runtime, request)
    return {"label": asked(state), "approval": request.key, "asks": asks}


@node(
    reads=(*CALL, "approval", "given"),
    writes=("attempt", "approval", "given", "input_problem", "status"),
    labels=("given", "unfit", "rejected"),
)
async def take_input(state: ExecuteState, runtime: Runtime[Deps]) -> ExecuteState:
    """A new attempt with the same arguments, that knows the answer."""
    deps, key, call = attempt_at(state, runtime)
    request, answer = answered(deps, state["approval"])
    if answer.choice == "reject":
        note_person(runtime, key, state["approval"], answer, key.next.attempt)
        deps.journal.amend(key.next, call)
        deps.journal.finish(key.next, call, rejected(answer))
        return {
            "label": "rejected",
            "attempt": key.next.attempt,
            "status": moved("scheduled", "execute", "fail"),
        }
    form = Form.model_validate(recorded(deps.journal, key).meta["form"])
    values = values_of(form, request.questions, answer.text or "")
    if isinstance(values, str):
        note_person(runtime, key, state["approval"], answer)
        return {"label": "unfit", "input_problem": f"The last answer doesn't fit: {values}."}
    note_person(runtime, key, state["approval"], answer, key.next.attempt)
    lines = [*given_input(deps, state), FilledForm(form=form, values=values)]
    text = "\n".join(line.model_dump_json() for line in lines)
    deps.journal.amend(key.next, call)
    given = deps.transcript.append("", [Message(role="tool", name=call.name, content=text)])
    return {
        "label": "given", "attempt": key.next.attempt, "approval": "", "given": given, "input_problem": "",
        "status": "scheduled",
    }  # fmt: skip


def by_asker(state: ExecuteState) -> Literal["model", "server"]:
    """Whose question was answered: a tool that runs asks only for its server."""
    return "server" if state["kind"] == "tool" else "model"
