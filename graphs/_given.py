"""_given: what a foreign graph is given: its fields, what is wrong with a value, and JSON made into its types."""

import dataclasses
import re
from collections.abc import Mapping
from typing import Annotated, Any, NotRequired, Required, cast, get_args, get_origin, get_type_hints

from langchain_core.messages import AnyMessage, convert_to_messages
from pydantic import BaseModel, ConfigDict, RootModel, TypeAdapter, ValidationError, create_model
from pydantic.errors import PydanticUserError

from interlock.graphs._langgraph import fields_of, input_type
from interlock.state.errors import InputError
from interlock.state.run import WorkflowInput
from interlock.state.text import nearest

MESSAGES = "messages"
"""The key that holds a conversation, by LangGraph's convention."""
_PROMPTS = (MESSAGES, "input", "question", "query", "prompt", "request", "task", "topic")
"""Fields that a PROMPT fills, the first one that there is."""


def model_of(graph: Any, name: str) -> type[WorkflowInput]:
    """A model of the graph's input, for its schema and its flags."""
    fields = fields_of(graph)
    kind = input_type(graph)
    title = "".join(part.title() for part in (*re.split(r"[\W_]", name), "input"))
    if fields is None:
        return cast(Any, create_model(title, input=(_described(kind), ...)))
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        theirs: dict[str, Any] = {
            key: (_described(field.annotation), field) for key, field in kind.model_fields.items()
        }
        plain = all(hint is field.annotation for hint, field in theirs.values())
        return cast(Any, kind if plain else create_model(title, **theirs))
    made: dict[str, Any] = {key: (_described(_plain(hint)) | None, None) for key, hint in fields.items()}
    return cast(
        Any, create_model(title, __config__=ConfigDict(extra="forbid", protected_namespaces=()), **made)
    )


def _described(hint: Any) -> Any:
    """The type; `Any` for one that no JSON Schema describes."""
    try:
        TypeAdapter(hint).json_schema()
    except (PydanticUserError, NameError, TypeError):
        return Any
    return hint


def prompt_of(graph: Any, kind: type[WorkflowInput]) -> str | None:
    """The field that a PROMPT fills: the messages, or a text of a usual name."""
    fields = fields_of(graph)
    if fields is None:
        return "input"
    texts = [key for key, hint in fields.items() if _bare(hint) is str]
    if MESSAGES in fields:
        return MESSAGES
    usual = [key for key in _PROMPTS if key in texts]
    needed = [key for key in texts if key in kind.model_fields and kind.model_fields[key].is_required()]
    return (usual or needed or (texts if len(texts) == 1 else []) or [None])[0]


def check_given(graph: Any, name: str, values: dict[str, Any], prompt: str | None) -> Any:
    """The values, for a graph without fields the one value. Raises `InputError`: which field, what was expected."""
    fields = fields_of(graph)
    if fields is None:
        if set(values) != {"input"}:
            raise InputError(
                f"{name} takes one value: --input '{{\"input\": …}}'; got {sorted(values)}.", "input"
            )
        return _made("input", input_type(graph), values["input"])
    for key in values:
        if key not in fields:
            known = nearest(key, fields) or f" {name} has: {', '.join(fields)}."
            raise InputError(f"Input field {key!r}: there is none of this name.{known}", key)
    if prompt == MESSAGES and isinstance(values.get(MESSAGES), str):
        values = {**values, MESSAGES: [{"role": "user", "content": values[MESSAGES]}]}
    taken(graph, values)
    return values


def taken(graph: Any, given: Mapping[str, Any]) -> Any:
    """JSON as the graph's own types; what a type can't be made of stays as it is. Raises `InputError`."""
    fields = fields_of(graph)
    if fields is None:
        return _made("input", input_type(graph), given["input"])
    kind = input_type(graph)
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        _fit(TypeAdapter(kind), dict(given), "")
    return {key: _made(key, fields[key], value) for key, value in given.items()}


def context_of(graph: Any, given: Mapping[str, Any]) -> Any:
    """The values as the graph's own context; None: it declares none. Raises `InputError`."""
    if (kind := graph.context_schema) is None:
        return None
    own = dataclasses.is_dataclass(kind)
    known = {field.name for field in dataclasses.fields(kind)} if own else {*get_type_hints(kind)}
    values = {key: value for key, value in given.items() if key in known}
    try:
        return TypeAdapter(kind).validate_python(values)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise InputError(
            f"Context field {place!r}: {first['msg']}. Give it: --context '{{\"{place}\": …}}'", place
        ) from error


def _made(key: str, hint: Any, value: Any) -> Any:
    bare = _plain(hint)
    if "BaseMessage" in repr(bare) or "AnyMessage" in repr(bare) or "AIMessage" in repr(bare):
        return _messages(key, value)
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(
            bare, config=None if _is_class(bare) else ConfigDict(arbitrary_types_allowed=True)
        )
    except (PydanticUserError, NameError, TypeError):
        return value
    return _fit(adapter, value, key)


def _fit(adapter: TypeAdapter[Any], value: Any, key: str) -> Any:
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in (*filter(None, [key]), *first["loc"])) or "input"
        raise InputError(f"Input field {place!r}: {first['msg']}.", place) from error


def _messages(key: str, value: Any) -> Any:
    many: list[Any] = cast("list[Any]", value) if isinstance(value, list) else [value]
    try:
        return TypeAdapter(list[AnyMessage]).validate_python(many)
    except (ValidationError, TypeError):
        pass  # other forms than LangChain's own JSON: OpenAI's, pairs, plain texts
    try:
        return convert_to_messages(many)
    except (ValueError, NotImplementedError, KeyError, TypeError) as error:
        expected = 'expected messages like {"role": "user", "content": "…"}'
        raise InputError(f"Input field {key!r}: {expected}.", key) from error


def _plain(hint: Any) -> Any:
    """The type without its reducer and `Required`."""
    while get_origin(hint) in (Annotated, Required, NotRequired):
        hint = get_args(hint)[0]
    return hint


def _bare(hint: Any) -> Any:
    """… and without `| None`."""
    plain = _plain(hint)
    others = [arg for arg in get_args(plain) if arg is not type(None)]
    return others[0] if len(others) == 1 and type(None) in get_args(plain) else plain


def _is_class(hint: Any) -> bool:
    """Whether pydantic takes its configuration from the type itself."""
    kind: Any = hint
    own = isinstance(hint, type) and issubclass(hint, BaseModel | RootModel)
    return own or hasattr(kind, "__dataclass_fields__") or hasattr(kind, "__total__")
