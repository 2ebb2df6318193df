"""foreign_requests: the input of a foreign graph, its interrupts as requests, and their answers.

Its input's fields, what is wrong with a value, and JSON as its types; an interrupt as requests to a person, and their
answers as the value that it resumes with.
"""

import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Annotated, Any, NotRequired, Required, cast, get_args, get_origin, get_type_hints

from langchain_core.messages import AnyMessage, convert_to_messages
from pydantic import BaseModel, ConfigDict, JsonValue, RootModel, TypeAdapter, ValidationError, create_model
from pydantic.errors import PydanticUserError

from interlock.graphs.langgraph_internals import input_field_types, input_type
from interlock.state.calls import Answer, ApprovalRequest, CallView, Choice
from interlock.state.errors import InputError, UserError
from interlock.state.run import WorkflowInput
from interlock.state.text import did_you_mean, schema_violation

MESSAGES = "messages"
"""The key that holds a conversation, by LangGraph's convention."""
_PROMPTS = (MESSAGES, "input", "question", "query", "prompt", "request", "task", "topic")
"""Fields that a PROMPT fills, the first one that there is."""


def build_input_model(graph: Any, name: str) -> type[WorkflowInput]:
    """A model of the graph's input, for its schema and its flags."""
    fields = input_field_types(graph)
    kind = input_type(graph)
    title = "".join(part.title() for part in (*re.split(r"[\W_]", name), "input"))
    if fields is None:
        return cast(Any, create_model(title, input=(_type_or_any_if_no_schema(kind), ...)))
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        theirs: dict[str, Any] = {
            key: (_type_or_any_if_no_schema(field.annotation), field)
            for key, field in kind.model_fields.items()
        }
        plain = all(hint is field.annotation for hint, field in theirs.values())
        return cast(Any, kind if plain else create_model(title, **theirs))
    made: dict[str, Any] = {
        key: (_type_or_any_if_no_schema(_strip_annotation(hint)) | None, None) for key, hint in fields.items()
    }
    return cast(
        Any, create_model(title, __config__=ConfigDict(extra="forbid", protected_namespaces=()), **made)
    )


def _type_or_any_if_no_schema(hint: Any) -> Any:
    """The type; `Any` for one that no JSON Schema describes."""
    try:
        has_schema = _has_schema(hint)
    except TypeError:  # it has no hash
        has_schema = _has_schema.__wrapped__(hint)
    return hint if has_schema else Any


@lru_cache(maxsize=256)
def _has_schema(hint: Any) -> bool:
    try:
        TypeAdapter(hint).json_schema()
    except (PydanticUserError, NameError, TypeError):
        return False
    return True


def find_prompt_field(graph: Any, kind: type[WorkflowInput]) -> str | None:
    """The field that a PROMPT fills: the messages, or a text of a usual name."""
    fields = input_field_types(graph)
    if fields is None:
        return "input"
    texts = [key for key, hint in fields.items() if _strip_optional(hint) is str]
    if MESSAGES in fields:
        return MESSAGES
    usual = [key for key in _PROMPTS if key in texts]
    needed = [key for key in texts if key in kind.model_fields and kind.model_fields[key].is_required()]
    return (usual or needed or (texts if len(texts) == 1 else []) or [None])[0]


def graph_input_from_values(graph: Any, values: Mapping[str, Any], prompt_field: str | None) -> Any:
    """What a person gave as the graph's input: as it is, but for a prompt, and `input` around a value without keys."""
    if input_field_types(graph) is None:
        return values["input"] if set(values) == {"input"} else values
    if prompt_field == MESSAGES and isinstance(values.get(MESSAGES), str):
        return {**values, MESSAGES: [{"role": "user", "content": values[MESSAGES]}]}
    return values


def ignored_key_warnings(graph: Any, name: str, given: Any) -> list[str]:
    """A line for each key of an input that the graph doesn't have: LangGraph ignores it, and it may be mistyped."""
    fields = input_field_types(graph)
    if fields is None or not isinstance(given, dict):
        return []
    unknown = [str(key) for key in cast("dict[str, Any]", given) if key not in fields]
    known = f" {name} has: {', '.join(fields)}."
    return [f"Input field {key!r} is ignored.{did_you_mean(key, fields) or known}" for key in unknown]


def convert_input(graph: Any, given: Any) -> Any:
    """An input with its JSON made into the classes that the graph's types name; what doesn't fit stays as it is."""
    fields = input_field_types(graph)
    if fields is None:
        return _convert_value(input_type(graph), given)
    if not isinstance(given, dict):
        return given
    values = cast("dict[str, Any]", given)
    return {key: _convert_value(fields.get(key, Any), value) for key, value in values.items()}


def build_graph_context(graph: Any, given: Mapping[str, Any]) -> Any:
    """The values as the graph's own context; None: it declares none. Raises `InputError`."""
    if (kind := graph.context_schema) is None:
        return None
    own = dataclasses.is_dataclass(kind)
    known = {field.name for field in dataclasses.fields(kind)} if own else {*get_type_hints(kind)}
    values = {key: value for key, value in given.items() if key in known}
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(kind)
    except (PydanticUserError, NameError, TypeError):  # such as a `typing.TypedDict` before Python 3.12
        return kind(**values)
    try:
        return adapter.validate_python(values)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise InputError(
            f"Context field {place!r}: {first['msg']}. Give it: --context '{{\"{place}\": …}}'", place
        ) from error


def _convert_value(hint: Any, value: Any) -> Any:
    bare = _strip_annotation(hint)
    if "BaseMessage" in repr(bare) or "AnyMessage" in repr(bare) or "AIMessage" in repr(bare):
        return _convert_messages(value)
    try:
        config = None if _has_pydantic_config(bare) else ConfigDict(arbitrary_types_allowed=True)
        made = TypeAdapter[Any](bare, config=config).validate_json(json.dumps(value), strict=True)
    except (PydanticUserError, ValueError, NameError, TypeError):
        return value
    return value if _is_plain_json(made) else made


def _is_plain_json(value: Any) -> bool:
    """Whether it is made of what JSON is read as, so that no class was made of it."""
    kind: Any = type(value)  # pyright: ignore[reportUnknownVariableType]
    if kind in (list, dict):
        return all(map(_is_plain_json, value.values() if kind is dict else value))
    return value is None or kind in (str, int, float, bool)


def _convert_messages(value: Any) -> Any:
    many: list[Any] = cast("list[Any]", value) if isinstance(value, list) else [value]
    with suppress(
        ValidationError, TypeError
    ):  # another form than LangChain's own: OpenAI's, pairs, plain texts
        if not any("role" in cast("dict[str, Any]", one) for one in many if isinstance(one, dict)):
            return TypeAdapter(list[AnyMessage]).validate_python(many)
    try:
        return convert_to_messages(many)
    except (ValueError, NotImplementedError, KeyError, TypeError):
        return cast(Any, value)


def _strip_annotation(hint: Any) -> Any:
    """The type without its reducer and `Required`."""
    while get_origin(hint) in (Annotated, Required, NotRequired):
        hint = get_args(hint)[0]
    return hint


def _strip_optional(hint: Any) -> Any:
    """… and without `| None`."""
    plain = _strip_annotation(hint)
    others = [arg for arg in get_args(plain) if arg is not type(None)]
    return others[0] if len(others) == 1 and type(None) in get_args(plain) else plain


def _has_pydantic_config(hint: Any) -> bool:
    """Whether pydantic takes its configuration from the type itself."""
    kind: Any = hint
    own = isinstance(hint, type) and issubclass(hint, BaseModel | RootModel)
    return own or hasattr(kind, "__dataclass_fields__") or hasattr(kind, "__total__")


_PREFIX = "interrupt:"
_CHOICES: Mapping[str, Choice] = {"approve": "proceed_once", "edit": "modify", "reject": "reject"}
"""Decision of LangChain's human-in-the-loop middleware → ours."""


def requests_from_interrupt(interrupt: Any, node: str, key_prefix: str = "") -> list[ApprovalRequest]:
    """The requests that an interrupt is. `key_prefix`: comes before its id in their keys."""
    value, key = interrupt.value, f"{_PREFIX}{key_prefix}{interrupt.id}"
    if actions := _parse_middleware_actions(value):
        return [_make_action_request(f"{key}:{i}", *action) for i, action in enumerate(actions)]
    asked: dict[str, JsonValue] = {"question": _question_text(value)}
    if schema := _answer_schema_of_interrupt(interrupt):
        asked["schema"] = schema
    return [
        ApprovalRequest(
            key=f"{key}:0",
            what="question",
            kind="question",
            call=CallView(id=interrupt.id, name=node, args={}),
            reason=f"Your graph asks (node `{node}`)",
            preview=format_payload_for_display(value),
            choices=("proceed_once",),
            questions=(asked,),
        )
    ]


def is_interrupt_request(request: ApprovalRequest) -> bool:
    """Return whether `interrupt`, or a breakpoint, made the request: its answer is what that returns."""
    return request.key.startswith(_PREFIX)


def is_breakpoint_request(request: ApprovalRequest) -> bool:
    """Return whether a request takes nothing but to go on."""
    is_one_choice = request.kind == "approval" and len(request.choices) == 1
    return is_one_choice and is_interrupt_request(request) and not request.parameters


def _question_text(value: Any) -> str:
    """The payload for people, its `question` first if it has one: lists show how a text begins."""
    if not isinstance(value, dict):
        return format_payload_for_display(value)
    rest = cast("dict[Any, Any]", value)
    if not isinstance(text := rest.get("question"), str) or not text.strip():
        return format_payload_for_display(value)
    others = {key: one for key, one in rest.items() if key != "question"}
    return "\n".join([text.strip(), *([format_payload_for_display(others)] if others else [])])


def _answer_schema_of_interrupt(interrupt: Any) -> dict[str, JsonValue]:
    """The JSON schema of the answer, given with the interrupt or in its payload; empty: it has none."""
    value = interrupt.value
    payload = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    for one in (interrupt.response_schema, payload.get("response_schema"), payload.get("schema")):
        if isinstance(one, dict) and {"type", "$ref", "enum"} & cast("dict[str, Any]", one).keys():
            return to_json_value(one)
    return {}


def check_answer_fits_schema(request: str, text: str, schema: Any) -> None:
    """Raises `UserError` for an answer that the interrupt's schema refuses."""
    if wrong := schema_violation(schema, parse_answer(text, schema)):
        raise UserError(
            f"The answer to {request!r} doesn't fit: {wrong}. Expected JSON by the schema: {json.dumps(schema)}"
        )


def make_breakpoint_request(checkpoint: str, where: str, values: Any) -> ApprovalRequest:
    """The request of a breakpoint; its one decision is to go on."""
    return ApprovalRequest(
        key=f"{_PREFIX}{checkpoint}:0",
        kind="approval",
        call=CallView(id=checkpoint, name=where.split("'")[1], args={}),
        reason=f"a breakpoint of the graph: {where}",
        preview=format_payload_for_display(values),
        choices=("proceed_once",),
    )


def _make_action_request(key: str, action: Mapping[str, Any], allowed: Sequence[str]) -> ApprovalRequest:
    args: dict[str, JsonValue] = to_json_value(dict(action.get("args") or {}))
    choices: tuple[Choice, ...] = tuple(choice for name, choice in _CHOICES.items() if name in allowed)
    return ApprovalRequest(
        key=key,
        kind="approval",
        call=CallView(id=key, name=str(action["name"]), args=args),
        reason=" ".join(str(action.get("description") or "Your graph asks before it runs this tool").split()),
        preview=format_payload_for_display(args),
        choices=choices or ("proceed_once", "reject"),
        parameters=(*args,),
    )


def _parse_middleware_actions(value: Any) -> list[tuple[Mapping[str, Any], Sequence[str]]]:
    """The actions of the middleware's payload, each with the decisions that it allows; empty: it is another's."""
    if not isinstance(value, dict) or not {"action_requests", "review_configs"} <= value.keys():
        return []
    payload = cast("dict[str, Any]", value)
    allowed = {config["action_name"]: config["allowed_decisions"] for config in payload["review_configs"]}
    return [(action, allowed.get(action["name"], [*_CHOICES])) for action in payload["action_requests"]]


_ANY: TypeAdapter[Any] = TypeAdapter(Any, config=ConfigDict(ser_json_bytes="base64"))


def to_json_value(value: Any) -> Any:
    """The value as JSON; what has no JSON, as its text."""
    try:
        return _ANY.dump_python(value, mode="json", fallback=str, warnings=False)
    except (ValueError, TypeError):  # such as a key that is no text
        return str(value)


def format_payload_for_display(value: Any) -> str:
    """The payload for people: a text as it is, anything else as YAML."""
    shown = to_json_value(value)
    if isinstance(shown, str):
        return shown
    if not isinstance(shown, dict | list):
        return json.dumps(shown)
    import yaml

    return yaml.safe_dump(shown, sort_keys=False, allow_unicode=True, width=1000).strip()


def resume_value_from_answers(answered: Sequence[tuple[ApprovalRequest, Any]]) -> Any:
    """What an interrupt resumes with: a list of decisions for actions, else the JSON or the text of the answer."""
    request, answer = answered[0]
    if request.kind == "question":
        return parse_answer(answer.text or "", request.questions[0].get("schema"))
    return {"decisions": [_to_middleware_decision(request, answer) for request, answer in answered]}


def _to_middleware_decision(request: ApprovalRequest, answer: Answer) -> dict[str, Any]:
    if answer.choice == "modify":
        return {"type": "edit", "edited_action": {"name": request.call.name, "args": answer.args or {}}}
    if answer.choice == "reject":
        return {"type": "reject", **({"message": answer.feedback} if answer.feedback else {})}
    return {"type": "approve"}


def parse_answer(text: str, schema: Any = None) -> Any:
    """An answer's JSON; what is none, or is asked for as a text, is a text."""
    if isinstance(schema, dict) and cast("dict[str, Any]", schema).get("type") == "string":
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


def encode_answer(request: ApprovalRequest, answer: Any) -> str:
    """The answer's text by which `value_of` makes the same value again."""
    schema = request.questions[0].get("schema") if request.questions else None
    wants_text = isinstance(schema, dict) and cast("dict[str, Any]", schema).get("type") == "string"
    return answer if isinstance(answer, str) and wants_text else json.dumps(answer)


_DECIDED: Mapping[str, Choice] = {**_CHOICES, "accept": "proceed_once", "ignore": "reject"}


def decision_fields_for_actions(requests: Sequence[ApprovalRequest], answer: Any) -> list[dict[str, Any]]:
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
