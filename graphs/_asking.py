"""_asking: an interrupt of a foreign graph as requests to a person, and their answers as the value it resumes with."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from pydantic import ConfigDict, JsonValue, TypeAdapter

from interlock.state.calls import Answer, ApprovalRequest, CallView, Choice
from interlock.state.errors import UserError
from interlock.state.text import misfit

_PREFIX = "interrupt:"
_CHOICES: Mapping[str, Choice] = {"approve": "proceed_once", "edit": "modify", "reject": "reject"}
"""Decision of LangChain's human-in-the-loop middleware → ours."""


def requests_of(item: Any, node: str) -> list[ApprovalRequest]:
    value, key = item.value, f"{_PREFIX}{item.id}"
    if actions := _actions(value):
        return [_approval(f"{key}:{i}", *action) for i, action in enumerate(actions)]
    asked: dict[str, JsonValue] = {"question": _question(value)}
    if schema := _schema(item):
        asked["schema"] = schema
    return [
        ApprovalRequest(
            key=f"{key}:0",
            what="question",
            kind="question",
            call=CallView(id=item.id, name=node, args={}),
            reason=f"node {node!r} asks",
            preview=readable(value),
            choices=("proceed_once",),
            questions=(asked,),
        )
    ]


def _question(value: Any) -> str:
    """The payload for people, its `question` first if it has one: lists show how a text begins."""
    if not isinstance(value, dict):
        return readable(value)
    rest = cast("dict[Any, Any]", value)
    if not isinstance(text := rest.get("question"), str) or not text.strip():
        return readable(value)
    others = {key: one for key, one in rest.items() if key != "question"}
    return "\n".join([text.strip(), *([readable(others)] if others else [])])


def _schema(item: Any) -> dict[str, JsonValue]:
    """The JSON schema of the answer, given with the interrupt or in its payload; empty: it has none."""
    value = item.value
    payload = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    for one in (item.response_schema, payload.get("response_schema"), payload.get("schema")):
        if isinstance(one, dict) and {"type", "$ref", "enum"} & cast("dict[str, Any]", one).keys():
            return plain(one)
    return {}


def check_answer(request: str, text: str, schema: Any) -> None:
    """Raises `UserError` for an answer that the interrupt's schema refuses."""
    if wrong := misfit(schema, given(text, schema)):
        raise UserError(
            f"The answer to {request!r} doesn't fit: {wrong}. Expected JSON by the schema: {json.dumps(schema)}"
        )


def pause_of(checkpoint: str, where: str, values: Any) -> ApprovalRequest:
    """The request of a breakpoint; its one decision is to go on."""
    return ApprovalRequest(
        key=f"{_PREFIX}{checkpoint}:0",
        kind="approval",
        call=CallView(id=checkpoint, name=where.split("'")[1], args={}),
        reason=f"a breakpoint of the graph: {where}",
        preview=readable(values),
        choices=("proceed_once",),
    )


def _approval(key: str, action: Mapping[str, Any], allowed: Sequence[str]) -> ApprovalRequest:
    args: dict[str, JsonValue] = plain(dict(action.get("args") or {}))
    choices: tuple[Choice, ...] = tuple(choice for name, choice in _CHOICES.items() if name in allowed)
    return ApprovalRequest(
        key=key,
        kind="approval",
        call=CallView(id=key, name=str(action["name"]), args=args),
        reason=" ".join(str(action.get("description") or "the agent asks before it runs this").split()),
        preview=readable(args),
        choices=choices or ("proceed_once", "reject"),
        parameters=(*args,),
    )


def _actions(value: Any) -> list[tuple[Mapping[str, Any], Sequence[str]]]:
    """The actions of the middleware's payload, each with the decisions that it allows; empty: it is another's."""
    if not isinstance(value, dict) or not {"action_requests", "review_configs"} <= value.keys():
        return []
    payload = cast("dict[str, Any]", value)
    allowed = {config["action_name"]: config["allowed_decisions"] for config in payload["review_configs"]}
    return [(action, allowed.get(action["name"], [*_CHOICES])) for action in payload["action_requests"]]


_ANY: TypeAdapter[Any] = TypeAdapter(Any, config=ConfigDict(ser_json_bytes="base64"))


def plain(value: Any) -> Any:
    """The value as JSON; what has no JSON, as its text."""
    try:
        return _ANY.dump_python(value, mode="json", fallback=str, warnings=False)
    except (ValueError, TypeError):  # such as a key that is no text
        return str(value)


def readable(value: Any) -> str:
    """The payload for people: a text as it is, anything else as YAML."""
    shown = plain(value)
    if isinstance(shown, str):
        return shown
    if not isinstance(shown, dict | list):
        return json.dumps(shown)
    import yaml

    return yaml.safe_dump(shown, sort_keys=False, allow_unicode=True, width=1000).strip()


def value_of(asked: Sequence[tuple[ApprovalRequest, Any]]) -> Any:
    """What an interrupt resumes with: a list of decisions for actions, else the JSON or the text of the answer."""
    request, answer = asked[0]
    if request.kind == "question":
        return given(answer.text or "", request.questions[0].get("schema"))
    return {"decisions": [_decision(request, answer) for request, answer in asked]}


def _decision(request: ApprovalRequest, answer: Answer) -> dict[str, Any]:
    if answer.choice == "modify":
        return {"type": "edit", "edited_action": {"name": request.call.name, "args": answer.args or {}}}
    if answer.choice == "reject":
        return {"type": "reject", **({"message": answer.feedback} if answer.feedback else {})}
    return {"type": "approve"}


def given(text: str, schema: Any = None) -> Any:
    """An answer's JSON; what is none, or is asked for as a text, is a text."""
    if isinstance(schema, dict) and cast("dict[str, Any]", schema).get("type") == "string":
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


def answer_text(request: ApprovalRequest, answer: Any) -> str:
    """The answer's text by which `value_of` makes the same value again."""
    schema = request.questions[0].get("schema") if request.questions else None
    wants_text = isinstance(schema, dict) and cast("dict[str, Any]", schema).get("type") == "string"
    return answer if isinstance(answer, str) and wants_text else json.dumps(answer)


_DECIDED: Mapping[str, Choice] = {**_CHOICES, "accept": "proceed_once", "ignore": "reject"}


def actions_decided(requests: Sequence[ApprovalRequest], answer: Any) -> list[dict[str, Any]]:
    """The fields of a decision on each action, by the middleware's own answer. Raises `UserError`."""
    given = cast("dict[str, Any]", answer).get("decisions") if isinstance(answer, dict) else None
    if not isinstance(given, list) or len(cast("list[Any]", given)) != len(requests):
        raise UserError(
            f'Expected {{"decisions": […]}} with {len(requests)} objects that have a `type`; got {answer!r}.'
        )
    made: list[dict[str, Any]] = []
    for request, one in zip(requests, cast("list[dict[str, Any]]", given), strict=True):
        choice = _DECIDED.get(str(one.get("type")))
        if choice not in request.choices:
            raise UserError(f"{request.call.name!r} takes {', '.join(request.choices)}; got {one!r}.")
        args = one.get("edited_action", {}).get("args") if choice == "modify" else None
        made.append({"choice": choice, "feedback": one.get("message"), "args": args})
    return made
