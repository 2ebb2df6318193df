"""tools_input: a call whose MCP server asks a person for input: asked, and made again with the answer."""

import json
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any, Literal, cast

from langgraph.runtime import Runtime
from pydantic import JsonValue

from interlock.nodes.tools_results import (
    CALL,
    answered,
    asked,
    attempt_at,
    given_input,
    moved,
    note_person,
    put_request,
    recorded,
    rejected,
)
from interlock.state.calls import ApprovalRequest, CallView, FilledForm, Form
from interlock.state.deps import Deps
from interlock.state.messages import Message
from interlock.state.run import node
from interlock.state.text import visible
from interlock.state.tools import ExecuteState

INPUT_WANTED = "input_wanted"
"""Error type of an attempt that failed for want of input; its `meta` holds the form."""


def _twice(deps: Deps, call: CallView) -> str:
    """A server may ask only after it has done something; while a run waits, nothing of the call can be kept open."""
    info = deps.toolset.info(call.name)
    return "" if info and info.effect == "none" else ": what it did before it asked, it does twice"


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
        f"The call failed without, and is then made again{_twice(deps, call)}. Reject to leave it.",
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


_LEFT_OUT = "-"
_YES = {"yes": True, "y": True, "true": True, "1": True, "no": False, "n": False, "false": False, "0": False}


def questions_of(form: Form) -> tuple[dict[str, JsonValue], ...]:
    """As `ask_user` has them; the first says what all are for."""
    about = visible(form.message) + (f"\n{visible(form.url)}" if form.url else "")
    if not form.fields:
        return ({"question": about, "options": ["yes"]},)
    found: list[dict[str, JsonValue]] = []
    for name, field in form.fields.items():
        text = "\n".join([*([] if found else [about]), _question(name, field, name in form.needed)])
        options = [{"label": visible(str(v)), "description": visible(t)} for v, t in _options(field)]
        found.append({"question": text, **({"options": cast(JsonValue, options)} if options else {})})
    return tuple(found)


def values_of(
    form: Form, questions: Sequence[Mapping[str, JsonValue]], text: str
) -> dict[str, JsonValue] | str:
    """The value of each field, or what is wrong with the answer.

    `text`: a JSON object; or the one value; or of several each below its question, as a terminal gives them.
    """
    given = _given(form, questions, text.strip())
    if isinstance(given, str):
        return given
    values: dict[str, JsonValue] = {}
    for name, field in form.fields.items():
        value = given.get(name)
        if value in (None, "", _LEFT_OUT):
            if name in form.needed:
                return f"{name!r} is missing"
            continue
        made = _value(field, value)
        if made is None:
            wanted = ", ".join(str(v) for v, _ in _options(field)) or field.get("type")
            return f"{name!r} is {value!r}, expected {'one of ' if _options(field) else ''}{visible(str(wanted))}"
        values[name] = made
    return values


def _question(name: str, field: Mapping[str, JsonValue], needed: bool) -> str:
    label, about = field.get("title") or name, field.get("description")
    kind = "" if _options(field) else f"{field.get('type', 'string')}, "
    default = f", default {field['default']}" if "default" in field else ""
    more = f"{kind}{'needed' if needed else f'{_LEFT_OUT} leaves it out'}{default}"
    return visible(f"{label}" + (f": {about}" if about else "") + f" ({more})")


def _options(field: Mapping[str, Any]) -> list[tuple[JsonValue, str]]:
    """Values to choose from, each with how it is called."""
    items: Any = field.get("items")
    source: Mapping[str, Any] = cast(Mapping[str, Any], items) if isinstance(items, dict) else field
    values: Any = source.get("enum")
    if isinstance(values, list):
        known, names = cast(list[Any], values), cast(Any, source.get("enumNames"))
        called = cast(list[Any], names)[: len(known)] if isinstance(names, list) else []
        return [(v, str(n or "")) for v, n in zip_longest(known, called)]
    each: Any = source.get("oneOf") or source.get("anyOf")
    if not isinstance(each, list):
        return [("yes", ""), ("no", "")] if field.get("type") == "boolean" else []
    known = (
        cast(Mapping[str, Any], e) for e in cast(list[Any], each) if isinstance(e, dict) and "const" in e
    )
    return [(e["const"], str(e.get("title", ""))) for e in known]


def _given(
    form: Form, questions: Sequence[Mapping[str, JsonValue]], text: str
) -> Mapping[str, JsonValue] | str:
    names = [*form.fields]
    try:
        found: Any = json.loads(text)
    except ValueError:
        found = None
    if isinstance(found, dict):
        unknown = [name for name in cast(dict[str, Any], found) if name not in names]
        return f"there is no {unknown[0]!r}, but {', '.join(names)}" if unknown else cast(Any, found)
    if len(names) < 2:
        return dict.fromkeys(names, text)
    given: dict[str, JsonValue] = {}
    for name, question in zip(names, questions, strict=False):
        before, at, text = text.partition(f"{question['question']}\n")
        if before.strip() or not at:
            return f"expected a JSON object with {', '.join(names)}"
        given[name], newline, rest = text.partition("\n")
        text = rest if newline else ""
    return given


def _value(field: Mapping[str, JsonValue], value: JsonValue) -> JsonValue:
    """None: it is none of this kind."""
    if field.get("type") == "array":
        items = value if isinstance(value, list) else [part.strip() for part in str(value).split(",")]
        chosen = [_chosen(field, item) for item in items]
        return None if None in chosen else chosen
    if field.get("type") == "boolean":
        return value if isinstance(value, bool) else _YES.get(str(value).lower())
    if _options(field):
        return _chosen(field, value)
    if field.get("type") in ("integer", "number"):
        if isinstance(value, bool):
            return None
        try:
            return int(str(value)) if field["type"] == "integer" else float(str(value))
        except ValueError:
            return None
    return value if isinstance(value, str) else str(value)


def _chosen(field: Mapping[str, JsonValue], value: JsonValue) -> JsonValue:
    words = str(value).lower()
    return next((v for v, name in _options(field) if words in (str(v).lower(), name.lower())), None)
