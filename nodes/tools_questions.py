"""tools_questions: what people answer: questions, plan reviews, outcomes hidden by a crash, forms of MCP servers."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal, cast

from langgraph.runtime import Runtime
from pydantic import JsonValue

from interlock.nodes.plan import parse_plan_steps
from interlock.nodes.requests import (
    has_server_changed,
    rejection_result,
    require_request_and_answer,
    server_changed_result,
    write_request_and_route,
)
from interlock.nodes.tools_results import (
    CALL,
    EXECUTED,
    call_status_after_events,
    load_deps_key_and_call,
    load_filled_forms,
    record_person_decision,
    require_recorded_result,
    should_fire_after_tool_hooks,
)
from interlock.prompts import load_prompt, render_prompt
from interlock.state.calls import (
    Answer,
    ApprovalRequest,
    CallKey,
    FileState,
    ToolResult,
    cancelled_result,
    error_result,
)
from interlock.state.deps import Deps, await_despite_cancel
from interlock.state.errors import RunError
from interlock.state.forms import FilledForm, Form
from interlock.state.messages import Message
from interlock.state.node import node
from interlock.state.text import make_visible
from interlock.state.tools import ExecuteState

INPUT_WANTED = "input_wanted"
"""Error type of an attempt that needs input; its `meta` has the form."""


@node(reads=(*CALL, "hooked"), writes=("approval",), labels=("asked", "notify"), group="questions")
async def ask_question(state: ExecuteState, runtime: Runtime[Deps]) -> ExecuteState:
    """Needs no permission: asking is harmless, and the answer is the person's own."""
    deps, key, call = load_deps_key_and_call(state, runtime)
    raw = call.args.get("questions")
    questions = tuple(q for q in raw if isinstance(q, dict)) if isinstance(raw, list) else ()
    preview = await deps.toolset.preview_call(call, ())
    request = ApprovalRequest(
        attempt=key,
        what="question",
        kind="question",
        call=call,
        reason="The model asks you.",
        preview=preview.text,
        choices=("proceed_once", "reject"),
        questions=preview.questions or questions,
    )
    return {**write_request_and_route(runtime, state, request)}


@node(
    reads=(*CALL, "approval", "hooked"),
    writes=("status",),
    labels=("done", "hooks"),
    group="questions",
    moves=EXECUTED,
)
async def take_answer(state: ExecuteState, runtime: Runtime[Deps]) -> ExecuteState:
    """The answer, verbatim, is the call's result."""
    deps, key, call = load_deps_key_and_call(state, runtime)
    request, answer = require_request_and_answer(deps, state["approval"])
    record_person_decision(runtime, key, state["approval"], answer)
    if answer.choice == "reject":  # an unanswered question has no result for hooks
        deps.journal.record_result(key, call, rejection_result(answer))
        return {"label": "done", "status": call_status_after_events("scheduled", "execute", "fail")}
    result = ToolResult(status="success", content=answer.text or "", meta=_mode_switch_meta(request, answer))
    deps.journal.record_result(key, call, result)
    return _ended_call_update(state, "succeed", "done")


def _mode_switch_meta(request: ApprovalRequest, answer: Answer) -> dict[str, JsonValue]:
    """The mode to switch to, if the chosen option names one."""
    raw = request.questions[0].get("options") if request.questions else None
    for option in raw if isinstance(raw, list) else []:
        if isinstance(option, dict) and option.get("mode") and option.get("label") == answer.text:
            return {"switch_to_mode": option["mode"]}
    return {}


def _ended_call_update(state: ExecuteState, event: str, label_without_hooks: str) -> ExecuteState:
    """The call has ended: continue with the hooks on its result or, without any, with `label_without_hooks`."""
    over: ExecuteState = {"status": call_status_after_events("scheduled", "execute", event)}
    return {
        **over,
        "label": "hooks" if should_fire_after_tool_hooks({**state, **over}) else label_without_hooks,
    }


@node(
    reads=(*CALL, "asks", "hooked"),
    writes=("approval", "asks"),
    labels=("asked", "notify", "no plan"),
    nondeterministic=True,
    group="questions",
)
async def ask_review(state: ExecuteState, runtime: Runtime[Deps]) -> ExecuteState:
    """Always ask: no policy, mode or flag approves a plan. Without a plan the model is told so."""
    deps, key, call = load_deps_key_and_call(state, runtime)
    name = str(call.args["plan_filename"])
    path = deps.plans.find_plan(name)
    text = await asyncio.to_thread(_read_plan_or_empty, path)
    if path is None or not text.strip():
        text = render_prompt("plan/missing", file=repr(name), folder=str(deps.plans.folder))
        deps.journal.record_result(key, call, ToolResult(status="success", content=text))
        return {"label": "no plan"}
    asks = (state.get("asks") or 0) + 1
    sha256 = deps.toolset.current_file_digest(str(path))
    request = ApprovalRequest(
        attempt=key,
        what="review",
        asked=asks,
        kind="approval",
        call=call.model_copy(update={"args": {**call.args, "plan": text, "approval_mode": "default"}}),
        reason="Interlock carries the plan out once you approve it.",
        preview=text,
        files=(FileState(path=str(path), sha256=sha256, on_disk=sha256),),
        choices=("proceed_once", "proceed_always", "modify", "reject", "cancel"),
        always={"proceed_always": _PLANS_EDITS},
        parameters=("plan", "approval_mode", *call.args),
        note="The plan file changed since it was shown; this is the new text." if asks > 1 else None,
    )
    return {**write_request_and_route(runtime, state, request), "asks": asks}


_PLANS_EDITS = "every change of a file by an editing tool while the plan is carried out; commands still ask"


def _read_plan_or_empty(path: Path | None) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace") if path else ""
    except OSError:
        return ""  # deleted meanwhile: treated as never written


@node(
    reads=(*CALL, "approval", "hooked"),
    writes=("status",),
    labels=("decided", "hooks", "changed since"),
    group="questions",
    moves=EXECUTED,
)
async def take_review(state: ExecuteState, runtime: Runtime[Deps]) -> ExecuteState:
    """Only what was read is approved: a file that changed meanwhile is shown again."""
    deps, key, call = load_deps_key_and_call(state, runtime)
    request, answer = require_request_and_answer(deps, state["approval"])
    record_person_decision(runtime, key, state["approval"], answer)
    if answer.choice in ("reject", "cancel"):
        deps.journal.record_result(key, call, _plan_rejection_result(answer))
        return _ended_call_update(state, "cancel" if answer.choice == "cancel" else "succeed", "decided")
    file = request.files[0]
    edited = (answer.args or {}).get("plan") if answer.choice == "modify" else None
    if isinstance(edited, str) and edited.strip():
        await await_despite_cancel(
            asyncio.to_thread(deps.plans.write_plan, Path(file.path), edited, str(key))
        )
        text = edited
    elif deps.toolset.current_file_digest(file.path) != file.on_disk:
        return {"label": "changed since"}
    else:
        text = request.preview
    record = deps.transcript.append("", [Message(role="tool", name=call.name, content=text)])
    deps.journal.record_result(key, call, _approved_plan_result(request, answer, text, record))
    return _ended_call_update(state, "succeed", "decided")


def _plan_rejection_result(answer: Answer) -> ToolResult:
    if answer.choice == "cancel":
        stopped = cancelled_result(render_prompt("plan/cancelled"))
        return stopped.model_copy(update={"stop": "cancelled by the user", "meta": {"plan": "cancel"}})
    prompt = "plan/rejected" if answer.feedback else "plan/rejected_silently"
    values = {"feedback": answer.feedback} if answer.feedback else {}
    meta: dict[str, JsonValue] = {"plan": "reject", "feedback": answer.feedback, "summary": "rejected"}
    return ToolResult(status="success", content=render_prompt(prompt, **values), meta=meta)


def check_claimed_plan_approval(deps: Deps, key: CallKey, result: ToolResult) -> None:
    """Raise `RunError` for a call's result that says that a plan was approved, if no person's answer says so."""
    event = str(result.meta.get("plan", ""))
    if not event.startswith("approve"):
        return
    asked, found = 1, ""
    while deps.approvals.find_request(name := f"{key}:review:{asked}") is not None:
        answer = deps.approvals.find_answer(name)
        found = _plan_approval_event(answer) if answer is not None else ""
        asked += 1
    if found != event:
        raise RunError(f"Call {key} says that its plan was approved ({event}), and nobody has answered so.")


def _plan_approval_event(answer: Answer) -> str:
    """The event of the chart that an answer to a review makes; empty: it approves nothing."""
    if answer.choice not in ("proceed_once", "proceed_always", "modify"):
        return ""
    asked = (answer.args or {}).get("approval_mode") if answer.choice == "modify" else None
    return (
        f"approve_{'auto_edit' if asked == 'auto_edit' or answer.choice == 'proceed_always' else 'default'}"
    )


def _approved_plan_result(request: ApprovalRequest, answer: Answer, text: str, record: str) -> ToolResult:
    verdict = _plan_approval_event(answer)
    path = request.files[0].path
    meta: dict[str, JsonValue] = {
        "plan": verdict,
        "plan_file": path,
        "plan_text": record,
        "plan_steps": [{"text": s["text"], "done": s["done"]} for s in parse_plan_steps(text)],
        "summary": f"approved, into {verdict.removeprefix('approve_')}",
    }
    return ToolResult(
        status="success", content=render_prompt("plan/approved", file=path, plan=text), meta=meta
    )


_KILLED = "The run was killed or stopped while this call ran."


@node(reads=(*CALL, "cause", "hooked"), writes=("approval",), labels=("asked", "notify"), group="questions")
async def ask_outcome(state: ExecuteState, runtime: Runtime[Deps]) -> ExecuteState:
    """Only a person can tell whether it happened; the preview is what was about to run."""
    deps, key, call = load_deps_key_and_call(state, runtime)
    reason = (
        f"{state.get('cause') or _KILLED} The call may or may not have taken effect. "
        "Look, then answer redo (run it again) or skip (tell the model that the outcome is unknown)."
    )
    request = ApprovalRequest(
        attempt=key,
        what="outcome",
        kind="outcome",
        call=call,
        reason=reason,
        preview=deps.toolset.summarize_call(call),
        choices=("proceed_once", "reject"),
        questions=({"question": reason, "options": ["redo", "skip"]},),
    )
    return {**write_request_and_route(runtime, state, request)}


@node(
    reads=(*CALL, "approval", "cause", "status"),
    writes=("attempt", "approval", "by_person", "status"),
    labels=("redo", "skip"),
    group="questions",
    moves=("schedule", *EXECUTED),
)
async def apply_outcome(state: ExecuteState, runtime: Runtime[Deps]) -> ExecuteState:
    """Redo makes a new attempt with the same arguments; skip closes this one."""
    deps, key, call = load_deps_key_and_call(state, runtime)
    request, answer = require_request_and_answer(deps, state["approval"])
    redo = answer.choice == "proceed_once"
    record_person_decision(runtime, key, state["approval"], answer, key.next_attempt.attempt if redo else 0)
    text = load_prompt("run/call_unknown_outcome").render(cause=state.get("cause") or _KILLED)
    deps.journal.record_result(key, call, error_result("unknown_outcome", text))
    await deps.snapshots.snapshot_after_call(key)
    if redo:
        deps.journal.record_changed_arguments(key.next_attempt, call)
        if not has_server_changed(deps, request):
            again: ExecuteState = {"approval": "", "by_person": True, "status": "scheduled"}
            return {**again, "label": "redo", "attempt": key.next_attempt.attempt}
        deps.journal.record_result(key.next_attempt, call, server_changed_result(request))
    attempt = key.next_attempt.attempt if redo else key.attempt
    return {
        "label": "skip",
        "attempt": attempt,
        "status": call_status_after_events("scheduled", "execute", "fail"),
    }


@node(
    reads=(*CALL, "asks", "input_problem", "hooked"),
    writes=("approval", "asks"),
    labels=("asked", "notify"),
    group="questions",
)
async def ask_input(state: ExecuteState, runtime: Runtime[Deps]) -> ExecuteState:
    """The reason attributes the server's words to the server and says what an answer does."""
    deps, key, call = load_deps_key_and_call(state, runtime)
    asks = (state.get("asks") or 0) + 1
    form = Form.model_validate(require_recorded_result(deps.journal, key).meta["form"])
    several = "; as a JSON object" if len(form.fields) > 1 else ""
    # A server may ask after it has done something; nothing of the call stays open while a run waits.
    info = deps.toolset.find_tool_info(call.name)
    twice = "" if info and info.effect == "none" else ": what it did before it asked, it does twice"
    request = ApprovalRequest(
        attempt=key,
        what="input",
        asked=asks,
        kind="question",
        call=call,
        reason=f"The MCP server that does {deps.toolset.summarize_call(call)!r} asks for this, and gets your "
        f"answer{several}. The call failed without, and is then made again{twice}. Reject to leave it.",
        preview="",
        choices=("proceed_once", "reject"),
        questions=questions_from_form(form),
        note=state.get("input_problem") or None,
    )
    return {**write_request_and_route(runtime, state, request), "asks": asks}


@node(
    reads=(*CALL, "approval", "given"),
    writes=("attempt", "approval", "by_person", "given", "input_problem", "status"),
    labels=("given", "unfit", "rejected"),
    group="questions",
    moves=("schedule", *EXECUTED),
)
async def take_input(state: ExecuteState, runtime: Runtime[Deps]) -> ExecuteState:
    """A new attempt with the same arguments and the answer."""
    deps, key, call = load_deps_key_and_call(state, runtime)
    request, answer = require_request_and_answer(deps, state["approval"])
    again = key.next_attempt.attempt
    another = has_server_changed(deps, request)
    if answer.choice == "reject" or another:
        record_person_decision(runtime, key, state["approval"], answer, again)
        deps.journal.record_changed_arguments(key.next_attempt, call)
        deps.journal.record_result(
            key.next_attempt, call, server_changed_result(request) if another else rejection_result(answer)
        )
        return {
            "label": "rejected",
            "attempt": again,
            "status": call_status_after_events("scheduled", "execute", "fail"),
        }
    form = Form.model_validate(require_recorded_result(deps.journal, key).meta["form"])
    values = parse_form_answer(form, request.questions, answer.text or "")
    if isinstance(values, str):
        record_person_decision(runtime, key, state["approval"], answer)
        return {"label": "unfit", "input_problem": f"The last answer doesn't fit: {values}."}
    record_person_decision(runtime, key, state["approval"], answer, again)
    lines = [*load_filled_forms(deps, state), FilledForm(form=form, values=values)]
    text = "\n".join(line.model_dump_json() for line in lines)
    deps.journal.record_changed_arguments(key.next_attempt, call)
    forms = deps.transcript.append("", [Message(role="tool", name=call.name, content=text)])
    fresh: ExecuteState = {"approval": "", "by_person": True, "input_problem": "", "status": "scheduled"}
    return {**fresh, "label": "given", "attempt": again, "given": forms}


def route_by_asker(state: ExecuteState) -> Literal["model", "server"]:
    """Whose question was answered: a running tool asks only on behalf of its server."""
    return "server" if state["kind"] == "tool" else "model"


_LEFT_OUT = "-"
_YES = {"yes": True, "y": True, "true": True, "1": True, "no": False, "n": False, "false": False, "0": False}


def questions_from_form(form: Form) -> tuple[dict[str, JsonValue], ...]:
    """The form as `ask_user` questions; the first includes the form's message."""
    about = make_visible(form.message) + (f"\n{make_visible(form.url)}" if form.url else "")
    if not form.fields:
        return ({"question": about, "options": ["yes"]},)
    found: list[dict[str, JsonValue]] = []
    for name, field in form.fields.items():
        text = "\n".join(
            [*([] if found else [about]), _format_field_question(name, field, name in form.needed)]
        )
        options = [
            {"label": make_visible(str(v)), "description": make_visible(t)} for v, t in _field_options(field)
        ]
        found.append({"question": text, **({"options": cast(JsonValue, options)} if options else {})})
    return tuple(found)


def parse_form_answer(
    form: Form, questions: Sequence[Mapping[str, JsonValue]], text: str
) -> dict[str, JsonValue] | str:
    """The value of each field, or what is wrong with the answer.

    `text`: a JSON object, or a single value, or several, each below its question, as entered at a terminal.
    """
    fields = _parse_answers_by_field(form, questions, text.strip())
    if isinstance(fields, str):
        return fields
    values: dict[str, JsonValue] = {}
    for name, field in form.fields.items():
        value = fields.get(name)
        if value in (None, "", _LEFT_OUT):
            if name in form.needed:
                return f"{name!r} is missing"
            continue
        made = _convert_field_value(field, value)
        if made is None:
            wanted = ", ".join(str(v) for v, _ in _field_options(field)) or field.get("type")
            one_of = "one of " if _field_options(field) else ""
            return f"{name!r} is {value!r}, expected {one_of}{make_visible(str(wanted))}"
        values[name] = made
    return values


def _format_field_question(name: str, field: Mapping[str, JsonValue], required: bool) -> str:
    label, about = field.get("title") or name, field.get("description")
    kind = "" if _field_options(field) else f"{field.get('type', 'string')}, "
    default = f", default {field['default']}" if "default" in field else ""
    more = f"{kind}{'needed' if required else f'{_LEFT_OUT} leaves it out'}{default}"
    return make_visible(f"{label}" + (f": {about}" if about else "") + f" ({more})")


def _field_options(field: Mapping[str, Any]) -> list[tuple[JsonValue, str]]:
    """Possible values with their labels."""
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


def _parse_answers_by_field(
    form: Form, questions: Sequence[Mapping[str, JsonValue]], text: str
) -> Mapping[str, JsonValue] | str:
    names = [*form.fields]
    try:
        found: Any = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if isinstance(found, dict):
        unknown = [name for name in cast(dict[str, Any], found) if name not in names]
        return f"there is no {unknown[0]!r}, but {', '.join(names)}" if unknown else cast(Any, found)
    if len(names) < 2:
        return dict.fromkeys(names, text)
    fields: dict[str, JsonValue] = {}
    for name, question in zip(names, questions, strict=False):
        before, at, text = text.partition(f"{question['question']}\n")
        if before.strip() or not at:
            return f"expected a JSON object with {', '.join(names)}"
        fields[name], newline, rest = text.partition("\n")
        text = rest if newline else ""
    return fields


def _convert_field_value(field: Mapping[str, JsonValue], value: JsonValue) -> JsonValue:
    """The value converted to the field's type; None: invalid."""
    if field.get("type") == "array":
        items = value if isinstance(value, list) else [part.strip() for part in str(value).split(",")]
        chosen = [_find_matching_option(field, item) for item in items]
        return None if None in chosen else chosen
    if field.get("type") == "boolean":
        return value if isinstance(value, bool) else _YES.get(str(value).lower())
    if _field_options(field):
        return _find_matching_option(field, value)
    if field.get("type") in ("integer", "number"):
        if isinstance(value, bool):
            return None
        try:
            return int(str(value)) if field["type"] == "integer" else float(str(value))
        except ValueError:
            return None
    return value if isinstance(value, str) else str(value)


def _find_matching_option(field: Mapping[str, JsonValue], value: JsonValue) -> JsonValue:
    words = str(value).lower()
    return next((v for v, name in _field_options(field) if words in (str(v).lower(), name.lower())), None)
