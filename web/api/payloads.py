"""payloads: what every answer of the API is made of: JSON of any value, times, ids, refusals."""

import base64
import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, cast
from uuid import UUID, uuid5

import orjson
from starlette.responses import Response

from interlock.state.text import clean_json
from interlock.web.endpoints import RefusedError

_RUNS = UUID("f4b0c0de-1c50-5d0f-9f11-9e4b6f7a31aa")
_GRAPHS = UUID("6ba7b821-9dad-11d1-80b4-00c04fd430c8")
"""As LangGraph's server has it."""


class NotFoundError(RefusedError):
    """What was named isn't there."""

    def __init__(self, detail: str) -> None:
        super().__init__(404, detail)


def thread_id_for_run(run: str) -> str:
    """Return the thread that a run is for programs, unless one of them named it."""
    return str(uuid5(_RUNS, run))


def assistant_id_for_workflow(workflow: str) -> str:
    """Return the assistant that a workflow is."""
    return str(uuid5(_GRAPHS, workflow))


def parse_uuid(text: object, kind: str, status: int = 422) -> str:
    """Return a UUID in its usual form. Raises `RefusedError`."""
    try:
        return str(UUID(str(text)))
    except ValueError:
        raise RefusedError(status, f"Invalid {kind} ID: must be a UUID") from None


def iso_time(unix_time: float) -> str:
    """Return a Unix time as programs read it."""
    return datetime.fromtimestamp(unix_time, UTC).isoformat()


def dump_json(value: Any) -> bytes:
    """A value as JSON, with LangChain's messages, interrupts and other objects as LangGraph's server writes them."""
    try:
        return orjson.dumps(value, default=_to_jsonable, option=orjson.OPT_NON_STR_KEYS)
    except TypeError:  # half a character in a text, or a number beyond 64 bits
        return orjson.dumps(clean_json(json.loads(json.dumps(value, default=_to_jsonable))))


def to_json_types(value: Any) -> Any:
    """Return a value as plain JSON types."""
    return orjson.loads(dump_json(value))


def _to_jsonable(unknown: object) -> Any:
    value = cast(Any, unknown)
    if callable(dump := getattr(value, "model_dump", None)) and not isinstance(unknown, type):
        return dump()
    if isinstance(unknown, BaseException):
        return {"error": type(value).__name__, "message": str(value)}
    if isinstance(unknown, tuple | set | frozenset):
        return [*value]
    if isinstance(unknown, Decimal):
        return float(unknown)
    if isinstance(unknown, timedelta):
        return unknown.total_seconds()
    if isinstance(unknown, bytes):
        return base64.b64encode(unknown).decode()
    if hasattr(unknown, "node") and hasattr(value, "arg"):  # a `Send`
        return {"node": value.node, "arg": value.arg}
    return str(value)


def json_response(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(dump_json(value), status, headers, "application/json")


def paginate(body: Mapping[str, Any], rows: list[Any]) -> tuple[list[Any], dict[str, str]]:
    """Return the rows that were asked for, and the header that says where more begin. Raises `RefusedError`."""
    limit, offset = read_limit(body, 10), read_whole_number_field(body, "offset", 0)
    return rows[offset : offset + limit], pagination_headers(limit, offset, len(rows))


def pagination_headers(limit: int, offset: int, total: int) -> dict[str, str]:
    """Return the header that says how many rows there are, and where more begin."""
    more = {"x-pagination-next": str(offset + limit)} if offset + limit < total else {}
    return {"x-pagination-total": str(total), **more}


def read_limit(body: Mapping[str, Any], default: int, maximum: int = 1000) -> int:
    """Return how many rows were asked for. Raises `RefusedError`."""
    limit = read_whole_number_field(body, "limit", default)
    if not 1 <= limit <= maximum:
        raise RefusedError(422, f"limit must be 1 to {maximum}, not {limit}.")
    return limit


def read_whole_number_field(body: Mapping[str, Any], name: str, default: int, minimum: int = 0) -> int:
    """Return a whole number. Raises `RefusedError`."""
    value = body.get(name)
    value = default if value in (None, "") else value
    if isinstance(value, str) and value.removeprefix("-").isdecimal():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
        raise RefusedError(422, f"{name} must be a whole number, not {value!r}.")
    return value


def read_object_field(source: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return a JSON object in another; empty: there is none. Raises `RefusedError`."""
    found: Any = source.get(name)
    if found is not None and not isinstance(found, dict):
        raise RefusedError(422, f"`{name}` must be a JSON object, not {found!r}.")
    return {**cast("dict[str, Any]", found or {})}


def read_string_list_field(source: Mapping[str, Any], name: str) -> list[str]:
    """Return a list of texts, or one; empty: there is none. Raises `RefusedError`."""
    found: Any = source.get(name) or []
    several = cast("list[Any]", [found] if isinstance(found, str) else found)
    if not isinstance(found, list | str) or not all(isinstance(one, str) for one in several):
        raise RefusedError(422, f"`{name}` must be a list of strings, not {found!r}.")
    return several


def check_allowed_values(body: Mapping[str, Any], allowed: Mapping[str, tuple[str, ...]]) -> None:
    """Raise `RefusedError` for a field that is none of the values that it may have; a list holds some."""
    for name, expected in allowed.items():
        found: Any = body.get(name, expected[0])
        several = cast("list[Any]", found) if isinstance(found, list) else [found]
        if wrong := [one for one in several if one not in expected]:
            raise RefusedError(
                422, f"{name} {wrong[0]!r} isn't supported. Expected of {', '.join(expected)}."
            )


def read_selected_fields(body: Mapping[str, Any], allowed: tuple[str, ...]) -> frozenset[str]:
    """Return the fields that are wanted of each row; empty: all. Raises `RefusedError`."""
    if isinstance(body.get("select"), str):
        raise RefusedError(422, "`select` must be a list of strings.")
    check_allowed_values({"select": read_string_list_field(body, "select")}, {"select": allowed})
    return frozenset(read_string_list_field(body, "select"))


def select_fields(row: dict[str, Any], fields: frozenset[str]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key in fields} if fields else row


def value_at_path(source: Any, path: str) -> Any:
    """Return what stands at a path such as `values.messages[-1].content`; None: nothing."""
    for key, place in re.findall(r"([^.\[\]]+)(?=[.\[]|$)|\[(-?\d+)\]", path):
        if place:
            held = cast("list[Any]", source) if isinstance(source, list) else []
            source = held[int(place)] if -len(held) <= int(place) < len(held) else None
        else:
            source = cast("dict[str, Any]", source).get(key) if isinstance(source, dict) else None
    return source


def matches_filter(wanted: Mapping[str, Any] | None, actual: Mapping[str, Any] | None) -> bool:
    """Return whether all that is wanted is there, also deeper in it."""
    for key, value in (wanted or {}).items():
        if key not in (actual or {}):
            return False
        own = (actual or {})[key]
        if isinstance(value, dict) and isinstance(own, dict):
            if not matches_filter(cast("dict[str, Any]", value), cast("dict[str, Any]", own)):
                return False
        elif own != value:
            return False
    return True
