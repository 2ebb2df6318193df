"""tool_schemas: what others declare of a tool's arguments, reduced to what every provider accepts.

There are no regular expressions to run and no references to fetch.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from interlock.state.text import make_visible

_DEEP = 12
"""Maximum depth of a schema; anything is accepted below."""
_PLAIN = ("minimum", "maximum", "minItems", "maxItems", "minLength", "maxLength")
_TYPES = frozenset({"string", "number", "integer", "boolean", "object", "array", "null"})
DESCRIPTION_CHARS = 10_000
"""Maximum characters of a description sent to models."""


def reduce_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Reduce an argument schema to the form sent to models and used for validation. Raises `ValueError`."""
    made = _reduce_subschema({**schema, "type": "object"}, schema, _DEEP)
    return {**made, "type": "object", "properties": made.get("properties", {})}


def _reduce_subschema(schema: object, root: Mapping[str, Any], depth_left: int) -> dict[str, Any]:
    if not isinstance(schema, Mapping) or not depth_left:
        return {}
    found = _inline_top_level_refs_and_all_of(cast(Mapping[str, Any], schema), root, depth_left)
    made: dict[str, Any] = {k: found[k] for k in _PLAIN if isinstance(found.get(k), int | float)}
    if isinstance(description := found.get("description") or found.get("title"), str):
        made["description"] = make_visible(description)[:DESCRIPTION_CHARS]
    if isinstance(values := found.get("enum", [found["const"]] if "const" in found else None), list):
        made["enum"] = values
    kinds = _schema_types(found)
    some = [kind for kind in kinds if kind != "null"] or kinds
    if some:
        made |= {"type": some[0]} if len(some) == 1 else {"anyOf": [{"type": kind} for kind in some]}
    for several in ("anyOf", "oneOf"):
        if isinstance(options := found.get(several), list) and options:
            made["anyOf"] = [_reduce_subschema(o, root, depth_left - 1) for o in cast(list[object], options)]
    if isinstance(items := found.get("items"), Mapping):
        made["items"] = _reduce_subschema(cast(object, items), root, depth_left - 1)
    elif made.get("type") == "array":
        made["items"] = {}
    made |= _reduce_object_properties(found, root, depth_left)
    return _allow_null(made) if len(kinds) > len(some) else made


def _allow_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Accept null, too, in the form that every provider understands."""
    about = {key: schema.pop(key) for key in ("description",) if key in schema}
    return {**about, "anyOf": [schema, {"type": "null"}]}


def _schema_types(schema: Mapping[str, Any]) -> list[str]:
    kinds = schema.get("type")
    several = cast(list[object], kinds) if isinstance(kinds, list) else [kinds]
    return [kind for kind in several if isinstance(kind, str) and kind in _TYPES]


def _reduce_object_properties(
    schema: Mapping[str, Any], root: Mapping[str, Any], depth_left: int
) -> dict[str, Any]:
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        return {}
    made: dict[str, Any] = {}
    for name, part in cast(Mapping[str, object], properties).items():
        if make_visible(name) != name:
            raise ValueError(f"the name of its parameter {make_visible(name)!r} isn't what it looks like")
        made[name] = _reduce_subschema(part, root, depth_left - 1)
    needed = schema.get("required")
    names = [n for n in cast(Sequence[object], needed) if n in made] if isinstance(needed, list) else []
    return {"properties": made, **({"required": names} if names else {})}


def _inline_top_level_refs_and_all_of(
    schema: Mapping[str, Any], root: Mapping[str, Any], depth_left: int
) -> Mapping[str, Any]:
    """Inline `$ref`, which must point into the schema itself, and merge `allOf`."""
    for _ in range(depth_left):
        target = schema.get("$ref")
        if not isinstance(target, str):
            break
        schema = {**_follow_reference(root, target), **{k: v for k, v in schema.items() if k != "$ref"}}
    if not isinstance(parts := schema.get("allOf"), list):
        return schema
    whole: dict[str, Any] = {}
    for part in (*cast(list[Any], parts), {k: v for k, v in schema.items() if k != "allOf"}):
        found: Mapping[str, Any] = cast(Mapping[str, Any], part) if isinstance(part, Mapping) else {}
        if isinstance(target := found.get("$ref"), str):
            found = {**_follow_reference(root, target), **found}
        joined = {**whole.get("properties", {}), **found.get("properties", {})}
        needed = [*whole.get("required", []), *found.get("required", [])]
        whole |= {
            **found,
            **({"properties": joined} if joined else {}),
            **({"required": needed} if needed else {}),
        }
    return {k: v for k, v in whole.items() if k != "$ref"}


def _follow_reference(root: Mapping[str, Any], reference: str) -> Mapping[str, Any]:
    """Raises `ValueError` for a reference out of the schema; one that leads nowhere yields an empty schema."""
    place: Any = root
    if not reference.startswith("#"):
        raise ValueError(f"its schema refers to {make_visible(reference)!r}, which lies outside of it")
    for key in reference.lstrip("#").strip("/").split("/"):
        name = key.replace("~1", "/").replace("~0", "~")
        place = cast(Mapping[str, Any], place).get(name) if name and isinstance(place, Mapping) else place
    return cast(Mapping[str, Any], place) if isinstance(place, Mapping) else {}
