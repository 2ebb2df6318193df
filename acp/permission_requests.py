"""permission_requests: a pending request as the protocol's question, and the client's answer as a decision."""

from collections.abc import Sequence

from interlock.acp.session_updates import Update, UpdateRenderer, diff_to_hunk_contents, text_content
from interlock.acp.wire import JsonRpcConnection
from interlock.engine.client import Decision, Pending
from interlock.engine.client.answer_choices import SAVED, answer_choices
from interlock.engine.client.requests import (
    RequestView,
    answer_form_schema,
    decide_from_form,
    decide_with_answers,
    describe_request,
    make_decision,
    option_line,
)
from interlock.state.text import dict_or_empty, make_visible

_KINDS = {"proceed_once": "allow_once", "reject": "reject_once"}
"""Choice → kind of option; all others that are offered last."""
_WITH_REASON = ", and say why"
"""The protocol's options take no text."""


def permission_options_with_decisions(request: Pending) -> dict[str, tuple[Update, Decision]]:
    """Return option → how it is offered, and what it decides: at most four, which includes no change of arguments."""
    found: dict[str, tuple[Update, Decision]] = {}
    if request["kind"] == "question":
        questions = describe_request(request).questions
        choices = questions[0].options if len(questions) == 1 else ()
        for number, choice in enumerate(choices, 1):
            option = {"optionId": f"option-{number}", "name": choice.label, "kind": "allow_once"}
            found[option["optionId"]] = option, decide_with_answers(request, [choice.label])
    for way in answer_choices(request, "this session"):
        if way.takes in ("arguments", "text") or (way.is_extra and way.choice != SAVED):
            continue
        name = way.text or way.choice
        option = {
            "optionId": name,
            "name": make_visible(way.label_with_scope.removesuffix(_WITH_REASON)),
            "kind": _KINDS.get(way.choice, "allow_always"),
        }
        found[name] = option, make_decision(request, way)
    return found


def needs_text_answer(request: Pending) -> bool:
    """Return whether only a text answers the request: no option can stand for it."""
    return request["kind"] == "question" and not any(
        o["kind"] == "allow_once" for o, _ in permission_options_with_decisions(request).values()
    )


def build_tool_call(request: Pending, renderer: UpdateRenderer) -> Update:
    """Return the call that a request is about, with what would happen."""
    view = describe_request(request)
    content: list[Update] = []
    if view.preview and view.shows == "diff":
        content += diff_to_hunk_contents(request["preview"], renderer.absolute_call_path(request["args"]))
    elif view.preview:
        content.append(text_content(make_visible(view.preview)))
    about = [*_build_description_lines(view)]
    return {
        "toolCallId": tool_call_id_of_request(request, renderer),
        "title": view.headline,
        "status": "pending",
        "rawInput": request["args"],
        "content": [*([text_content("\n".join(about))] if about else []), *content],
        "locations": renderer.call_locations(request["args"]),
    }


def _build_description_lines(view: RequestView) -> list[str]:
    lines = [view.note, view.purpose, view.why]
    lines += [f"- `{part.text}`: {part.decision}, {part.reason}" for part in view.parts]
    return [line for line in (*lines, *question_lines(view)) if line]


def question_lines(view: RequestView) -> list[str]:
    """Return each question with its options; those of a single one are choices already, and stand here if explained."""
    several = len(view.questions) > 1
    return [
        line
        for question in view.questions
        for line in (question.text, *(option_line(o) for o in question.options if o.about or several))
    ]


def tool_call_id_of_request(request: Pending, renderer: UpdateRenderer) -> str:
    return renderer.make_tool_call_id(request["id"].rpartition("-")[0], request["agent"], request["call"])


async def request_permission(
    wire: JsonRpcConnection, session_id: str, request: Pending, renderer: UpdateRenderer
) -> Decision | None:
    """Ask for the person's decision. None: it is left open. Raises `RpcError`."""
    offered = permission_options_with_decisions(request)
    params = {
        "sessionId": session_id,
        "toolCall": build_tool_call(request, renderer),
        "options": [option for option, _ in offered.values()],
    }
    chosen = dict_or_empty(
        dict_or_empty(await wire.send_request("session/request_permission", params)).get("outcome")
    )
    if chosen.get("outcome") == "cancelled":
        return find_cancel_decision(request)
    found = offered.get(str(chosen.get("optionId")))
    return found[1] if found and chosen.get("outcome") == "selected" else None


async def request_choice(
    wire: JsonRpcConnection, session_id: str, call_id: str, title: str, details: str, labels: Sequence[str]
) -> int | None:
    """Ask which of these the person chooses; None: none of them. Raises `RpcError`."""
    options = [
        {"optionId": str(place), "name": one, "kind": "allow_once"} for place, one in enumerate(labels)
    ]
    call = {"toolCallId": call_id, "title": title, "status": "pending"}
    params = {
        "sessionId": session_id,
        "toolCall": {**call, "content": [text_content(details)] if details else []},
        "options": [*options, {"optionId": "no", "name": "no", "kind": "reject_once"}],
    }
    answer = await wire.send_request("session/request_permission", params)
    chosen = str(dict_or_empty(dict_or_empty(answer).get("outcome")).get("optionId"))
    return int(chosen) if chosen.isdecimal() and int(chosen) < len(labels) else None


async def request_form_answer(wire: JsonRpcConnection, session_id: str, request: Pending) -> Decision | None:
    """Ask for the answers to a question, by a form. None: it is left open. Raises `RpcError`."""
    message = describe_request(request).headline
    params = {
        "sessionId": session_id,
        "mode": "form",
        "message": message,
        "requestedSchema": answer_form_schema(request),
    }
    fields = dict_or_empty(await wire.send_request("elicitation/create", params))
    if fields.get("action") != "accept":
        return find_cancel_decision(request) if fields.get("action") == "cancel" else None
    return decide_from_form(request, dict_or_empty(fields.get("content")))


def find_cancel_decision(request: Pending) -> Decision | None:
    """Return the decision of a person who stops the run at a request; None: it can't be stopped there."""
    way = next((way for way in answer_choices(request) if way.choice == "cancel"), None)
    return make_decision(request, way) if way else None
