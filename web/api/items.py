"""items: LangGraph's store of what outlives runs, as programs read and write it."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

from starlette.requests import Request
from starlette.responses import Response

from interlock.engine.client import Client, threads
from interlock.web.answers import RefusedError, body
from interlock.web.api.answers import answer, part, texts, whole


class Items:
    def __init__(self, client: Client) -> None:
        self._home = client.home

    async def _asked(self, ask: Callable[[Any], Any]) -> Any:
        try:
            return await asyncio.to_thread(threads.ask_memory_store, self._home, ask)
        except ValueError as error:  # a namespace or a filter that LangGraph's store refuses
            raise RefusedError(422, str(error)) from error

    async def put(self, request: Request) -> Response:
        given = await body(request)
        namespace: Any = given.get("namespace")
        if not namespace:
            raise RefusedError(400, "`namespace` must have at least one label.")
        if wrong := _wrong(namespace):
            return answer(wrong, 422)
        await self._asked(lambda store: store.put(tuple(namespace), given["key"], given["value"]))
        return Response(status_code=204)

    async def get(self, request: Request) -> Response:
        asked = request.query_params
        seen: Any = getattr(request.state, "given", {"namespace": asked.get("namespace", "").split(".")})
        namespace = [part for part in seen["namespace"] if part]
        if not (key := asked.get("key")):
            return answer({"error": "Key is required"}, 400)
        if wrong := _wrong(namespace):
            return answer(wrong, 422)
        found = await self._asked(lambda store: store.get(tuple(namespace), key))
        return answer(_shown(found) if found else None)

    async def delete(self, request: Request) -> Response:
        given: Any = await body(request)
        namespace: Any = given.get("namespace")
        if wrong := _wrong(namespace):
            return answer(wrong, 422)
        key: str = given["key"]
        await self._asked(lambda store: store.delete(tuple(namespace), key))
        return Response(status_code=204)

    async def search(self, request: Request) -> Response:
        given = await body(request)
        prefix, wanted, query = (
            tuple(texts(given, "namespace_prefix")),
            part(given, "filter"),
            given.get("query"),
        )
        limit, offset = whole(given, "limit", 10) or 10, whole(given, "offset", 0)
        found = await self._asked(
            lambda store: store.search(prefix, filter=wanted or None, limit=limit, offset=offset, query=query)
        )
        return answer({"items": [{**_shown(one), "score": one.score} for one in found]})

    async def namespaces(self, request: Request) -> Response:
        given = await body(request)
        ends = {name: tuple(texts(given, name)) for name in ("prefix", "suffix") if given.get(name)}
        depth = whole(given, "max_depth", 0) or None
        limit, offset = whole(given, "limit", 100), whole(given, "offset", 0)
        found = await self._asked(
            lambda store: store.list_namespaces(**ends, max_depth=depth, limit=limit, offset=offset)
        )
        return answer({"namespaces": [[*one] for one in found]})


def _shown(item: Any) -> dict[str, Any]:
    return {
        "namespace": [*item.namespace],
        "key": item.key,
        "value": item.value,
        "created_at": item.created_at.isoformat(),
        "updated_at": item.updated_at.isoformat(),
    }


def _wrong(namespace: Any) -> str:
    """What is wrong with a namespace; empty: nothing."""
    if not isinstance(namespace, list) or not namespace:
        return "Namespace is required: a list of strings."
    if any(not isinstance(one, str) or not one or "." in one for one in cast("list[Any]", namespace)):
        return f"Namespace labels must be strings without a period. Got: {namespace!r}"
    return ""
