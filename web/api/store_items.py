"""store_items: LangGraph's store of what outlives runs, as programs read and write it."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

from starlette.requests import Request
from starlette.responses import Response

from interlock.engine.client import Client, threads
from interlock.web.api.payloads import (
    json_response,
    read_object_field,
    read_string_list_field,
    read_whole_number_field,
)
from interlock.web.endpoints import RefusedError, read_json_body


class StoreItems:
    def __init__(self, client: Client) -> None:
        self._home = client.home

    async def _query_memory_store(self, query: Callable[[Any], Any]) -> Any:
        try:
            return await asyncio.to_thread(threads.query_memory_store, self._home, query)
        except ValueError as error:  # a namespace or a filter that LangGraph's store refuses
            raise RefusedError(422, str(error)) from error

    async def put_item(self, request: Request) -> Response:
        given = await read_json_body(request)
        namespace: Any = given.get("namespace")
        if not namespace:
            raise RefusedError(400, "`namespace` must have at least one label.")
        if wrong := _describe_namespace_problem(namespace):
            return json_response(wrong, 422)
        await self._query_memory_store(
            lambda store: store.put(tuple(namespace), given["key"], given["value"])
        )
        return Response(status_code=204)

    async def get_item(self, request: Request) -> Response:
        asked = request.query_params
        seen: Any = getattr(request.state, "given", {"namespace": asked.get("namespace", "").split(".")})
        namespace = [part for part in seen["namespace"] if part]
        if not (key := asked.get("key")):
            return json_response({"error": "Key is required"}, 400)
        if wrong := _describe_namespace_problem(namespace):
            return json_response(wrong, 422)
        found = await self._query_memory_store(lambda store: store.get(tuple(namespace), key))
        return json_response(_item_json(found) if found else None)

    async def delete_item(self, request: Request) -> Response:
        given: Any = await read_json_body(request)
        namespace: Any = given.get("namespace")
        if wrong := _describe_namespace_problem(namespace):
            return json_response(wrong, 422)
        key: str = given["key"]
        await self._query_memory_store(lambda store: store.delete(tuple(namespace), key))
        return Response(status_code=204)

    async def search_items(self, request: Request) -> Response:
        given = await read_json_body(request)
        prefix, wanted, query = (
            tuple(read_string_list_field(given, "namespace_prefix")),
            read_object_field(given, "filter"),
            given.get("query"),
        )
        limit, offset = (
            read_whole_number_field(given, "limit", 10) or 10,
            read_whole_number_field(given, "offset", 0),
        )
        found = await self._query_memory_store(
            lambda store: store.search(prefix, filter=wanted or None, limit=limit, offset=offset, query=query)
        )
        return json_response({"items": [{**_item_json(one), "score": one.score} for one in found]})

    async def list_namespaces(self, request: Request) -> Response:
        given = await read_json_body(request)
        ends = {
            name: tuple(read_string_list_field(given, name))
            for name in ("prefix", "suffix")
            if given.get(name)
        }
        depth = read_whole_number_field(given, "max_depth", 0) or None
        limit, offset = (
            read_whole_number_field(given, "limit", 100),
            read_whole_number_field(given, "offset", 0),
        )
        found = await self._query_memory_store(
            lambda store: store.list_namespaces(**ends, max_depth=depth, limit=limit, offset=offset)
        )
        return json_response({"namespaces": [[*one] for one in found]})


def _item_json(item: Any) -> dict[str, Any]:
    return {
        "namespace": [*item.namespace],
        "key": item.key,
        "value": item.value,
        "created_at": item.created_at.isoformat(),
        "updated_at": item.updated_at.isoformat(),
    }


def _describe_namespace_problem(namespace: Any) -> str:
    """Return what is wrong with a namespace; empty: nothing."""
    if not isinstance(namespace, list) or not namespace:
        return "Namespace is required: a list of strings."
    if any(not isinstance(one, str) or not one or "." in one for one in cast("list[Any]", namespace)):
        return f"Namespace labels must be strings without a period. Got: {namespace!r}"
    return ""
