"""remote: servers behind an address, by SSE or streamable HTTP."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from interlock.services.mcp.spec import ServerSpec

_CONNECT_S = 30.0


@asynccontextmanager
async def streams(spec: ServerSpec) -> AsyncGenerator[tuple[Any, Any]]:
    """The SDK's transport. Redirects to elsewhere aren't followed: headers may hold what opens doors."""
    import httpx2
    from mcp.client.sse import sse_client
    from mcp.client.streamable_http import streamable_http_client

    headers = dict(spec.headers or {})
    if spec.transport == "sse":
        async with sse_client(spec.url, headers, _CONNECT_S, spec.timeout_s) as both:
            yield both
        return
    timeout = httpx2.Timeout(_CONNECT_S, read=spec.timeout_s)
    async with (
        httpx2.AsyncClient(headers=headers, timeout=timeout) as client,
        streamable_http_client(spec.url, http_client=client) as both,
    ):
        yield both
