"""remote: servers behind an address, by SSE or streamable HTTP."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from interlock.services.mcp.oauth import needed
from interlock.services.mcp.spec import MOST, TOO_LONG, ServerSpec

if TYPE_CHECKING:
    from httpx2 import Auth, Response

_CONNECT_S = 30.0
_UNAUTHORIZED, _BROKEN = 401, 500


@asynccontextmanager
async def streams(
    spec: ServerSpec, auth: "Auth | None", lost: Callable[[str], None]
) -> AsyncGenerator[tuple[Any, Any]]:
    """The SDK's transport. Redirects to elsewhere aren't followed: headers may hold what opens doors.

    `auth` signs in where the server asks for it; without it `lost` is told what to do.
    """
    import httpx2
    from mcp.client.sse import sse_client
    from mcp.client.streamable_http import streamable_http_client

    async def look(response: "Response") -> None:
        """What the SDK would take for an answer."""
        code, is_json = response.status_code, "json" in response.headers.get("content-type", "")
        if code == _UNAUTHORIZED and auth is None:
            lost(needed(spec))
        if code >= _BROKEN and not is_json:  # what stands before the server doesn't know what that did
            raise httpx2.HTTPStatusError(f"HTTP {code}", request=response.request, response=response)
        if is_json:
            response.stream = _bounded(response.stream)

    client = partial(httpx2.AsyncClient, headers=dict(spec.headers or {}), event_hooks={"response": [look]})
    timeout = httpx2.Timeout(_CONNECT_S, read=spec.timeout_s)
    if spec.transport == "sse":

        def made(headers: Any = None, timeout: Any = None, auth: Any = None) -> httpx2.AsyncClient:  # noqa: ARG001
            return client(timeout=timeout, auth=auth)

        async with sse_client(spec.url, None, _CONNECT_S, spec.timeout_s, made, auth) as both:
            yield both
        return
    async with (
        client(timeout=timeout, auth=auth) as http,
        streamable_http_client(spec.url, http_client=http, max_sse_event_size=MOST) as both,
    ):
        yield both


def _bounded(stream: Any) -> Any:
    """A body that ends with an error where it is too long for one message."""
    import httpx2

    class Bounded(httpx2.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            left = MOST
            async for chunk in stream:
                left -= len(chunk)
                if left < 0:
                    raise httpx2.StreamError(TOO_LONG)
                yield chunk

        async def aclose(self) -> None:
            await stream.aclose()

    return Bounded()
