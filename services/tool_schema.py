"""tool_schema: an args model as the plain JSON Schema that models are sent, and its errors as one line."""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, cast

from pydantic import BaseModel, ValidationError

WAIT = "wait_for_previous"
"""Accepted by every tool that may run beside others: run it after the calls before it (gemini-cli)."""
_WAIT_SCHEMA = {
    "type": "boolean",
    "description": "True: run only after the calls before it in the same message. Default false.",
}
_KEPT = frozenset(
    {"type", "description", "enum", "items", "properties", "required", "anyOf"}
    | {"minimum", "maximum", "minItems", "maxItems", "minLength", "maxLength"}
)
"""What every provider understands: Gemini's API refuses `$ref`, `const`, `additionalProperties` and more."""
_SHOWN = 60
"""Characters of a wrong value that an error quotes."""
_MOST_ERRORS = 3


@cache  # pydantic makes it anew each time: 13 ms a request for all tools
def parameters(args: type[BaseModel], *, may_wait: bool = False) -> dict[str, Any]:
    """The schema with all definitions in place, without titles and defaults. Shared: not to be changed."""
    whole = args.model_json_schema()
    schema = _plain(whole, whole.get("$defs", {}))
    schema.setdefault("properties", {})
    schema.pop("description", None)  # the class's docstring; the tool has its own
    if may_wait:
        schema["properties"][WAIT] = dict(_WAIT_SCHEMA)
    return schema


def _plain(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    if "$ref" in schema:
        target = definitions[schema["$ref"].rpartition("/")[2]]
        schema = {**target, **{k: v for k, v in schema.items() if k != "$ref"}}
    if "anyOf" in schema and "default" in schema and schema["default"] is None:
        # Null is what leaving it out means: no need to say it.
        others = [option for option in schema["anyOf"] if option.get("type") != "null"]
        if len(others) == 1:
            schema = {**others[0], **{k: v for k, v in schema.items() if k not in ("anyOf", "default")}}
            return _plain(schema, definitions)
    if "const" in schema:
        schema = {**schema, "enum": [schema["const"]]}
    return {key: _value(key, value, definitions) for key, value in schema.items() if key in _KEPT}


def _value(key: str, value: Any, definitions: Mapping[str, Any]) -> Any:
    if key == "properties":
        return {name: _plain(part, definitions) for name, part in value.items()}
    if key == "anyOf":
        return [_plain(part, definitions) for part in value]
    return _plain(value, definitions) if key == "items" else value


def describe(tool: str, args: type[BaseModel], error: ValidationError) -> str:
    """The first errors on one line: which field, what was expected, what came."""
    found = error.errors(include_url=False, include_context=False)
    texts = [_describe_one(args, cast(Mapping[str, Any], one)) for one in found[:_MOST_ERRORS]]
    more = f"; and {len(found) - _MOST_ERRORS} more" if len(found) > _MOST_ERRORS else ""
    return f"{tool}: {'; '.join(texts)}{more}."


def _describe_one(args: type[BaseModel], error: Mapping[str, Any]) -> str:
    where = _place(error["loc"])
    if error["type"] == "missing":
        return f"{where!r} is missing"
    if error["type"] == "extra_forbidden":
        known = (
            "" if len(error["loc"]) > 1 else f", expected one of {', '.join(parameters(args)['properties'])}"
        )
        return f"{where!r} is not a parameter{known}"
    message = error["msg"].removeprefix("Value error, ")
    if not where:
        return message
    return f"{where!r}: {message[:1].lower()}{message[1:]}, got {_short(error['input'])}"


def _place(location: Sequence[int | str]) -> str:
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def _short(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
