"""tools_server_forms: an MCP server's request for input as questions for a person, and the answers as its values."""

import json
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any, cast

from pydantic import JsonValue

from interlock.state.calls import Form
from interlock.state.text import visible

_LEFT_OUT = "-"
_YES = {"yes": True, "y": True, "true": True, "1": True, "no": False, "n": False, "false": False, "0": False}


def form_questions(form: Form) -> tuple[dict[str, JsonValue], ...]:
    """The form as `ask_user` questions; the first includes the form's message."""
    about = visible(form.message) + (f"\n{visible(form.url)}" if form.url else "")
    if not form.fields:
        return ({"question": about, "options": ["yes"]},)
    found: list[dict[str, JsonValue]] = []
    for name, field in form.fields.items():
        text = "\n".join([*([] if found else [about]), _field_question(name, field, name in form.needed)])
        options = [{"label": visible(str(v)), "description": visible(t)} for v, t in _field_options(field)]
        found.append({"question": text, **({"options": cast(JsonValue, options)} if options else {})})
    return tuple(found)


def parse_form_answer(
    form: Form, questions: Sequence[Mapping[str, JsonValue]], text: str
) -> dict[str, JsonValue] | str:
    """The value of each field, or what is wrong with the answer.

    `text`: a JSON object, or a single value, or several, each below its question, as entered at a terminal.
    """
    fields = _answers_by_field(form, questions, text.strip())
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
            return f"{name!r} is {value!r}, expected {'one of ' if _field_options(field) else ''}{visible(str(wanted))}"
        values[name] = made
    return values


def _field_question(name: str, field: Mapping[str, JsonValue], needed: bool) -> str:
    label, about = field.get("title") or name, field.get("description")
    kind = "" if _field_options(field) else f"{field.get('type', 'string')}, "
    default = f", default {field['default']}" if "default" in field else ""
    more = f"{kind}{'needed' if needed else f'{_LEFT_OUT} leaves it out'}{default}"
    return visible(f"{label}" + (f": {about}" if about else "") + f" ({more})")


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


def _answers_by_field(
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
        chosen = [_option_value(field, item) for item in items]
        return None if None in chosen else chosen
    if field.get("type") == "boolean":
        return value if isinstance(value, bool) else _YES.get(str(value).lower())
    if _field_options(field):
        return _option_value(field, value)
    if field.get("type") in ("integer", "number"):
        if isinstance(value, bool):
            return None
        try:
            return int(str(value)) if field["type"] == "integer" else float(str(value))
        except ValueError:
            return None
    return value if isinstance(value, str) else str(value)


def _option_value(field: Mapping[str, JsonValue], value: JsonValue) -> JsonValue:
    words = str(value).lower()
    return next((v for v, name in _field_options(field) if words in (str(v).lower(), name.lower())), None)
