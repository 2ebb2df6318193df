"""request_schemas: what the body of each request may hold, as LangGraph's server takes it; anything else is refused."""

from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from typing import Any

from starlette.requests import Request

from interlock.engine.client.program_drive import NATIVE
from interlock.web.endpoints import RefusedError, read_json_body, read_json_list_body

_Schema = Mapping[str, Any]


def _described_schema(description: str, **schema: Any) -> _Schema:
    """Return a JSON schema, with the words that finish “… must be”."""
    return {"title": description, **schema}


def _enum_schema(*values: str) -> _Schema:
    return _described_schema(f"one of {', '.join(values)}", enum=[*values])


def _enum_list_schema(*values: str) -> _Schema:
    return _described_schema(
        f"a list of some of {', '.join(values)}", type="array", items={"enum": [*values]}
    )


def _any_of_schema(description: str, *alternatives: _Schema) -> _Schema:
    return _described_schema(description, anyOf=[*alternatives])


def _nullable_schema(schema: _Schema) -> _Schema:
    return _any_of_schema(schema["title"], schema, {"type": "null"})


_TEXT, _FLAG = (
    _described_schema("a string", type="string"),
    _described_schema("true or false", type="boolean"),
)
_OBJECT = _described_schema("a JSON object", type="object")
_TEXTS = _described_schema("a list of strings", type="array", items={"type": "string"})
_WHOLE, _NUMBER = (
    _described_schema("a whole number", type="integer"),
    _described_schema("a number", type="number"),
)
_LIMIT = _described_schema("a whole number from 1 to 1000", type="integer", minimum=1, maximum=1000)
_FROM_0 = _described_schema("a whole number from 0", type="integer", minimum=0)
_ORDER = _enum_schema("asc", "desc")
_PLACE = _described_schema(
    "a checkpoint: an object with `checkpoint_id` and `checkpoint_ns`",
    type="object",
    properties={
        **dict.fromkeys(("thread_id", "checkpoint_ns", "checkpoint_id"), _TEXT),
        "checkpoint_map": _OBJECT,
    },
)
_TTL = _described_schema(
    "an object with `ttl`, in minutes, and `strategy`: delete or keep_latest",
    type="object",
    properties={"ttl": _NUMBER, "strategy": _enum_schema("delete", "keep_latest")},
)
_CONFIG = _described_schema(
    "an object; `tags` a list of strings, `recursion_limit` a whole number, `configurable` an object",
    type="object",
    properties={"tags": _TEXTS, "recursion_limit": _WHOLE, "configurable": _OBJECT},
)
_SEND = _described_schema("", type="object", required=["node"], properties={"node": _TEXT})
_COMMAND = _described_schema(
    "an object; `goto` a node, an object with `node` and `input`, or a list of them; `update` an object or a list",
    type="object",
    properties={
        "update": {"type": ["object", "array", "null"]},
        "goto": {
            "anyOf": [_SEND, {"type": "array", "items": {"anyOf": [_SEND, _TEXT]}}, _TEXT, {"type": "null"}]
        },
    },
)
_NODES = _any_of_schema("'*' or a list of nodes", {"enum": ["*"]}, _TEXTS)
_MODE = {"enum": [*NATIVE, "messages-tuple", "events"]}
_MODES = _any_of_schema(f"of {', '.join(_MODE['enum'])}", _MODE, {"type": "array", "items": _MODE})
_STATUS = _enum_schema("idle", "busy", "interrupted", "error")

ASSISTANT_FIELDS = (
    *("assistant_id", "graph_id", "name", "description", "config", "context", "created_at", "updated_at"),
    *("metadata", "version"),
)
THREAD_FIELDS = (
    *("thread_id", "created_at", "updated_at", "state_updated_at", "metadata", "config", "status"),
    *("values", "interrupts"),
)
_ASSISTANT: Mapping[str, _Schema] = {
    "graph_id": _TEXT,
    "config": _OBJECT,
    "context": _OBJECT,
    "metadata": _OBJECT,
    "name": _TEXT,
    "description": _nullable_schema(_TEXT),
}
_RUN: Mapping[str, _Schema] = {
    "checkpoint": _PLACE,
    "command": _nullable_schema(_COMMAND),
    "metadata": _OBJECT,
    "config": _CONFIG,
    "context": _OBJECT,
    "webhook": _described_schema("an address", type="string", minLength=1),
    "interrupt_before": _NODES,
    "interrupt_after": _NODES,
    "stream_mode": _MODES,
    "stream_subgraphs": _FLAG,
    "stream_resumable": _FLAG,
    "feedback_keys": _TEXTS,
    "multitask_strategy": _enum_schema("enqueue", "reject", "interrupt", "rollback"),
    "if_not_exists": _enum_schema("create", "reject"),
    "after_seconds": _NUMBER,
    "checkpoint_during": _FLAG,
    "durability": _enum_schema("sync", "async", "exit"),
    "on_disconnect": _enum_schema("cancel", "continue"),
}
_ALONE = {**_RUN, "on_completion": _enum_schema("delete", "keep")}
"""Of a run without a thread."""
_PAGE: Mapping[str, _Schema] = {"limit": _LIMIT, "offset": _FROM_0, "sort_order": _ORDER}
_FOUND_THREADS = {"metadata": _OBJECT, "values": _OBJECT, "status": _STATUS}
_BODIES: Mapping[str, tuple[Mapping[str, _Schema], tuple[str, ...]]] = {
    "assistant": (
        {**_ASSISTANT, "assistant_id": _TEXT, "if_exists": _enum_schema("raise", "do_nothing")},
        ("graph_id",),
    ),
    "assistant.patch": (_ASSISTANT, ()),
    "assistants": (
        {
            **_PAGE,
            **dict.fromkeys(("graph_id", "name"), _TEXT),
            "metadata": _OBJECT,
            "sort_by": _enum_schema("assistant_id", "created_at", "updated_at", "name", "graph_id"),
            "select": _enum_list_schema(*ASSISTANT_FIELDS),
        },
        (),
    ),
    "assistant.count": ({"metadata": _OBJECT, "graph_id": _TEXT, "name": _TEXT}, ()),
    "versions": ({"metadata": _OBJECT, "limit": _LIMIT, "offset": _FROM_0}, ()),
    "latest": ({"version": _WHOLE}, ()),
    "thread": (
        {
            "thread_id": _TEXT,
            "metadata": _OBJECT,
            "if_exists": _enum_schema("raise", "do_nothing"),
            "ttl": _TTL,
            "supersteps": _described_schema("a list", type="array"),
        },
        (),
    ),
    "thread.patch": ({"metadata": _OBJECT, "ttl": _TTL}, ()),
    "threads": (
        {
            **_PAGE,
            **_FOUND_THREADS,
            "ids": _TEXTS,
            "sort_by": _enum_schema("thread_id", "status", "created_at", "updated_at", "state_updated_at"),
            "select": _enum_list_schema(*THREAD_FIELDS),
            "extract": _OBJECT,
        },
        (),
    ),
    "thread.count": (_FOUND_THREADS, ()),
    "thread.prune": (
        {"thread_ids": _TEXTS, "strategy": _enum_schema("delete", "keep_latest")},
        ("thread_ids",),
    ),
    "state": ({"checkpoint": _PLACE, "as_node": _TEXT}, ()),
    "state.at": ({"checkpoint": _PLACE, "subgraphs": _FLAG}, ("checkpoint",)),
    "history": ({"limit": _LIMIT, "metadata": _OBJECT, "checkpoint": _PLACE}, ()),
    "run": (_RUN, ("assistant_id",)),
    "run.alone": (_ALONE, ("assistant_id",)),
    "runs": (_ALONE, ("assistant_id",)),
    "runs.cancel": (
        {"thread_id": _TEXT, "run_ids": _TEXTS, "status": _enum_schema("pending", "running", "all")},
        (),
    ),
    "item": (
        {
            "namespace": _TEXTS,
            "key": _TEXT,
            "value": _OBJECT,
            "index": _any_of_schema("false or a list of strings", {"enum": [False, None]}, _TEXTS),
            "ttl": _nullable_schema(_NUMBER),
        },
        ("namespace", "key", "value"),
    ),
    "item.delete": ({"namespace": _TEXTS, "key": _TEXT}, ("key",)),
    "item.search": (
        {
            "namespace_prefix": _nullable_schema(_TEXTS),
            "filter": _nullable_schema(_OBJECT),
            "limit": _WHOLE,
            "offset": _WHOLE,
            "query": _nullable_schema(_TEXT),
            "refresh_ttl": _nullable_schema(_FLAG),
        },
        (),
    ),
    "namespaces": (
        {
            **dict.fromkeys(("prefix", "suffix"), _TEXTS),
            **dict.fromkeys(("max_depth", "limit", "offset"), _WHOLE),
        },
        (),
    ),
}
"""Kind of body → its fields, and those that it must have. A field that isn't named here may hold anything."""
_WHY = {"assistant_id": ": the id of an assistant, or a workflow's name"}


def add_body_validation(
    handler: Callable[[Request], Awaitable[Any]], body_kind: str
) -> Callable[[Request], Awaitable[Any]]:
    """Return an endpoint for a body of this kind; `-`: it has none, or checks its own. Raises `RefusedError`."""
    if body_kind == "-":
        return handler

    async def endpoint(request: Request) -> Any:
        if body_kind == "runs":
            several = await read_json_list_body(request)
            if not several:
                raise RefusedError(422, "`body` must be a JSON array with at least one run.")
            for one in several:
                _validate_fields(body_kind, one)
        else:
            request.state.given = await read_json_body(request)
            _validate_fields(body_kind, request.state.given)
        return await handler(request)

    return endpoint


def _validate_fields(body_kind: str, body: Mapping[str, Any]) -> None:
    fields, needed = _BODIES[body_kind]
    if missing := [name for name in needed if name not in body]:
        raise RefusedError(422, f"{missing[0]} is required{_WHY.get(missing[0], '')}.")
    if wrong := [str(error.absolute_path[0]) for error in _schema_validator(body_kind).iter_errors(body)]:
        name = min(wrong)
        raise RefusedError(422, f"`{name}` must be {fields[name]['title']}, not {body[name]!r}.")


@cache
def _schema_validator(body_kind: str) -> Any:
    from jsonschema import Draft202012Validator  # deferred: the first request that is checked waits for it

    return Draft202012Validator({"type": "object", "properties": {**_BODIES[body_kind][0]}})
