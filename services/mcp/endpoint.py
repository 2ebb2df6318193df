"""endpoint: servers at a URL, through SSE or streamable HTTP: the SDK's transports, and what HTTP answers mean."""

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from interlock.services.mcp.exchanges import AnsweredError, Exchange, LostError, NotRunError, current_exchange
from interlock.services.mcp.sign_in import sign_in_needed_message
from interlock.services.mcp.spec import MOST, TOO_LONG, ServerSpec
from interlock.state.text import make_visible

if TYPE_CHECKING:
    from httpx2 import Auth, Request, Response

Lost = Callable[[str], None]
"""Called with the reason when the session is lost."""
_CONNECT_S = 30.0
_TAKEN, _UNAUTHORIZED, _NOT_FOUND, _TIMED_OUT, _BROKEN = 202, 401, 404, 408, 500
_REDIRECTS = range(300, 400)
_SESSION = "mcp-session-id"
_OF_SESSIONS = frozenset((-32000, -32001, -32600))
"""Codes by which servers refuse a session that they don't know."""
_SAYS_SESSION = re.compile(r"session|initiali[sz]", re.IGNORECASE)
_SHOWN = 200
"""Maximum characters of a body in a reason."""


@asynccontextmanager
async def open_http_streams(
    spec: ServerSpec, auth: "Auth | None", on_lost: Lost
) -> AsyncGenerator[tuple[Any, Any]]:
    """Open the SDK's transport. Cross-origin redirects aren't followed: headers may contain credentials.

    `auth` signs in if the server requires it; without it `on_lost` is called with instructions.
    """
    import httpx2
    from mcp.client.sse import sse_client
    from mcp.client.streamable_http import streamable_http_client

    client = partial(_make_client_class(spec, auth is not None, on_lost), headers=dict(spec.headers or {}))
    timeout = httpx2.Timeout(_CONNECT_S, read=spec.timeout_s)
    if spec.transport == "sse":

        def made(headers: Any = None, timeout: Any = None, auth: Any = None) -> httpx2.AsyncClient:  # noqa: ARG001 - the SDK's signature
            return client(timeout=timeout, auth=auth)

        async with sse_client(spec.url, None, _CONNECT_S, spec.timeout_s, made, auth) as both:
            yield both
        return
    async with (
        client(timeout=timeout, auth=auth) as http,
        streamable_http_client(spec.url, http_client=http, max_sse_event_size=MOST) as both,
    ):
        yield both


def _make_client_class(spec: ServerSpec, can_sign_in: bool, on_lost: Lost) -> Any:
    """Return the class of an HTTP client that notes what becomes of each request."""
    import httpx2

    class Client(httpx2.AsyncClient):
        async def send(self, request: "Request", **kwargs: Any) -> "Response":
            exchange = current_exchange() if request.method == "POST" else None
            if exchange is not None and spec.transport == "sse":
                exchange.on_its_way = asyncio.Event()
            try:
                response = await super().send(request, **kwargs)
                await _limit_and_record_response(response, exchange, spec, can_sign_in)
            except Exception as error:
                if exchange is not None:
                    exchange.problem = _client_error_to_lost_error(error)
                    on_lost(str(exchange.problem))
                raise
            finally:
                if exchange is not None and exchange.on_its_way is not None:
                    exchange.on_its_way.set()
            if exchange is not None and exchange.problem is not None and spec.transport == "sse":
                on_lost(str(exchange.problem))  # the SDK would wait for the answer
            if response.status_code == _UNAUTHORIZED and not can_sign_in:
                on_lost(sign_in_needed_message(spec))
            return response

    return Client


async def _limit_and_record_response(
    response: "Response", exchange: Exchange | None, spec: ServerSpec, can_sign_in: bool
) -> None:
    """Limit a response's size, and note in `exchange`, if the request is watched, what isn't an answer to it."""
    import httpx2

    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    events = kind == "text/event-stream" and response.is_success
    resumed = current_exchange() if events and spec.transport == "http" else None
    if resumed is not None:  # the answer's stream, the first one or what continues it
        resumed.streamed, resumed.problem = True, None
    response.stream = _limit_body(response.stream, resumed, events)
    if exchange is None or response.status_code in _REDIRECTS:
        return
    exchange.status = response.status_code
    if events or (spec.transport == "sse" and response.is_success):
        return
    try:
        body = await response.aread()
    except httpx2.StreamError:
        exchange.problem = LostError(TOO_LONG)
        return
    message = _parse_rpc_message(body)
    if not response.is_success:
        exchange.problem = _http_error_to_exception(response, exchange, spec, can_sign_in, body, message)
    elif response.status_code == _TAKEN or "json" not in kind:
        exchange.problem = LostError(f"it answered HTTP {response.status_code} without a result")
    elif message is None:
        exchange.problem = LostError("its answer can't be read")


def _parse_rpc_message(body: bytes) -> Any:
    """Parse a JSON-RPC message; None: it is none."""
    from mcp.types import jsonrpc_message_adapter

    try:
        return jsonrpc_message_adapter.validate_json(body, by_name=False)
    except ValueError:
        return None


def _http_error_to_exception(
    response: "Response", exchange: Exchange, spec: ServerSpec, can_sign_in: bool, body: bytes, message: Any
) -> LostError | AnsweredError:
    """Tell what an HTTP error says of the request: not dispatched, answered, or unknown."""
    code, text = response.status_code, _body_excerpt(response, body)
    error: Any = getattr(message, "error", None)
    mine = bool(error) and message.id == exchange.id
    if code == _UNAUTHORIZED and not can_sign_in:
        return NotRunError(sign_in_needed_message(spec))
    in_session = _SESSION in response.request.headers or spec.transport == "sse"
    of_session = code == _NOT_FOUND or _SAYS_SESSION.search(text) is not None
    of_call = mine and error and error.code not in _OF_SESSIONS
    if in_session and of_session and not of_call and code < _BROKEN:
        return NotRunError("it has forgotten the session")
    if error and (mine or code < _BROKEN):
        return AnsweredError(make_visible(f"{error.message} ({error.code})"), error)
    why = f"HTTP {code}{f': {text}' if text else ''}"
    # A server, or a proxy in front of it, may fail after it has begun.
    return LostError(f"it answered {why}") if code >= _BROKEN or code == _TIMED_OUT else AnsweredError(why)


def _body_excerpt(response: "Response", body: bytes) -> str:
    if "html" in response.headers.get("content-type", ""):
        return ""
    return make_visible(" ".join(body[: 4 * _SHOWN].decode(errors="replace").split()))[:_SHOWN]


def _client_error_to_lost_error(error: Exception) -> LostError:
    """Tell what an exception in place of a response says of the request."""
    import httpx2

    text = " ".join(str(error).split())
    why = f"{type(error).__name__}: {text}" if text else type(error).__name__
    if isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.PoolTimeout):
        return NotRunError(why)
    if isinstance(error, httpx2.ReadTimeout):
        return LostError("it did not answer in time")
    if isinstance(error, httpx2.TransportError):
        return LostError(f"the connection broke ({why})")
    return NotRunError(text or why)  # signing in failed: the server had refused the request with a 401


def _limit_body(stream: Any, exchange: Exchange | None, is_event_stream: bool) -> Any:
    """Wrap a body, or each event of a stream, to raise an error once it exceeds the size of one message.

    What ends an event stream before the answer is noted in `exchange`.
    """
    import httpx2

    class Limited(httpx2.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            left = MOST
            try:
                async for chunk in stream:
                    left -= len(chunk)
                    if left < 0:
                        raise httpx2.StreamError(TOO_LONG)
                    if is_event_stream and (end := _last_event_end(chunk)) >= 0:
                        left = MOST - (len(chunk) - end)
                    yield chunk
            except (httpx2.TransportError, httpx2.StreamError) as error:
                if exchange is not None:
                    long = isinstance(error, httpx2.StreamError)
                    exchange.problem = LostError(TOO_LONG) if long else _client_error_to_lost_error(error)
                raise
            if exchange is not None:
                exchange.problem = LostError("")

        async def aclose(self) -> None:
            await stream.aclose()

    return Limited()


def _last_event_end(chunk: bytes) -> int:
    return max(chunk.rfind(end) for end in (b"\n\n", b"\r\r", b"\r\n\r\n"))
